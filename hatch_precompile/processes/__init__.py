"""The processes of a build: their pipes, their time limits, and an end for each of them."""

from hatch_precompile.processes.child import connect_to_parent, leave_reason, tell
from hatch_precompile.processes.commands import commands_of, end_commands, run_command
from hatch_precompile.processes.memory import free_memory
from hatch_precompile.processes.parent import (
    Finished,
    in_parallel,
    preloaded,
    reason_left,
    run_module,
    stopping_children,
    with_advice,
    within_memory,
)

__all__ = [
    "Finished",
    "commands_of",
    "connect_to_parent",
    "end_commands",
    "free_memory",
    "in_parallel",
    "leave_reason",
    "preloaded",
    "reason_left",
    "run_command",
    "run_module",
    "stopping_children",
    "tell",
    "with_advice",
    "within_memory",
]
