"""Dynamo's trees of guards: each accessor and each check that we lower, and none that we do not know."""

from __future__ import annotations

import inspect
from typing import Any

from torch._dynamo.guards import GuardBuilder

from hatch_precompile import tracing
from hatch_precompile.lower.guards.leaves import _LEAVES as LEAVES
from hatch_precompile.tracing.guardtree import ACCESSORS


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def methods(suffix: str = "", prefix: str = "") -> set[str]:
    """Methods of the classes guard trees are built with."""
    names = {name for cls in tracing.guard_manager_classes() for name in vars(cls)}
    return {name for name in names if name.startswith(prefix) and name.endswith(suffix)}


class TestGuardVocabulary:
    # Known, and refused by lowering with a sentence: no accessor of ours leads there.
    REFUSED_ACCESSORS = frozenset({"clone_manager"})
    ROOT_LEAVES = frozenset(
        {
            "add_default_device_guard",
            "add_dual_level_match_guard",
            "add_epilogue_lambda_guard",
            "add_global_state_guard",
            "add_lambda_guard",
            "add_tensor_match_guard",
            "add_torch_function_mode_stack_guard",
        }
    )
    REFUSED_LEAVES = frozenset(
        {
            "add_complex_is_nan_guard",
            "add_dispatch_key_set_guard",
            "add_fake_script_type_match_guard",
            "add_range_iterator_match_guard",
            "add_tuple_iterator_length_guard",
        }
    )

    def test_there_is_no_accessor_we_do_not_know(self) -> None:
        assert methods(suffix="_manager") - self.REFUSED_ACCESSORS - set(ACCESSORS) == set()

    def test_there_is_no_check_we_do_not_know(self) -> None:
        lowered = {f"add_{kind}" for kind in LEAVES}
        assert methods(prefix="add_") - lowered - self.ROOT_LEAVES - self.REFUSED_LEAVES == set()

    def test_every_check_we_lower_is_still_there(self) -> None:
        marks = {"add_dimension_marking_guard", "add_dynamic_indices_guard"}  # before torch 2.13 the latter
        lowered = {f"add_{kind}" for kind in LEAVES} | self.ROOT_LEAVES
        assert lowered - marks <= methods(prefix="add_")
        assert len(marks & methods(prefix="add_")) == 1

    def test_other_methods_are_read_only(self) -> None:
        """Something that adds to a tree under another kind of name would go unrecorded."""
        rest = {
            name
            for name in methods()
            if not name.startswith(("_", "add_", "get_", "is_", "has_", "mark_"))
            and not name.endswith("_manager")
        }
        # The last two are torch 2.15's: for a guard read from a file, and for several accelerators.
        later = {"set_local_state", "set_compile_on_one_rank"}
        assert rest - later == {"attach_compile_id", "check", "check_verbose", "fail_count"}

    def test_accessors_take_their_key_by_the_name_we_read(self) -> None:
        """pybind writes the signature into the docstring; dynamo calls some by position."""
        for cls in tracing.guard_manager_classes():
            for name in set(vars(cls)) & set(ACCESSORS):
                key = ACCESSORS[name]
                first = vars(cls)[name].__doc__.partition("self: ")[2].split(", ")[1].partition(":")[0]
                assert first in (key or "source", "arg0"), name  # arg0: raises, whatever it is given

    def test_relational_guards_are_called_through_their_module(self) -> None:
        module, names = tracing.relational_guards()
        present = {name for name in vars(module) if name.startswith("install_") and name.endswith("_guard")}
        assert present - {"install_guard"} == set(names)

    def test_symbolic_guards_come_as_text(self) -> None:
        method = tracing.guard_builder().add_python_lambda_leaf_guard_to_root
        assert parameters(method) == [
            "self",
            "code_parts",
            "verbose_code_parts",
            "closure_vars",
            "is_epilogue",
        ]
        assert tracing.guard_builder() is GuardBuilder
