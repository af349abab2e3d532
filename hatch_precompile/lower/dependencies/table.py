"""Everything an entry depends on: the table that docs/inputs.md is made from.

Guards cover the values that dynamo takes for variable. The rest it takes for constant, or does not note that
it was not there. The places where it does so are watched in tracing/assumptions/; writer.py makes
a dependency (kinds.py) of each thing, and templates/dependencies/comparison.py compares it.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

__all__ = ["GROUPS", "ROWS", "Group", "Row", "inputs_page"]

_CHANGED = "tests/inputs/test_inputs.py::test_what_has_changed_before_the_first_call_is_not_served"
_EXECUTED = "tests/inputs/test_executed.py::test_what_has_changed_before_the_first_call_is_not_served"
_AT_CALL = "tests/inputs/test_inputs.py::test_what_may_change_between_calls_is_asked_at_each"
_ASKED = "tests/inputs/test_asked.py::test_it_is_not_served_where_it_is_there"
_UNUSED = "tests/inputs/test_inputs.py::test_what_the_trace_did_not_use_may_change"

_WIDTH = 120


@dataclass(frozen=True)
class Row:
    """One kind of thing that an entry depends on.

    kind: of the record in an entry, "" where it is no record; what: the thing; kept: what of it is compared,
    "" for nothing; test: a pytest id without its parameters, and `case` one of these
    """

    kind: str
    what: str
    kept: str
    test: str
    case: str = ""


@dataclass(frozen=True)
class Group:
    """What is compared at one time. text: what happens where it differs; tests: those that need not be named
    with each input, because the text does."""

    heading: str
    text: str
    rows: tuple[Row, ...]
    tests: tuple[str, ...] = ()


_AT_LOAD = Group(
    "When the entry is loaded",
    "That is, by the first call that passes the entry's first checks. Where something differs, the entry is "
    "left "
    "out and a warning says why. Test, if no other is named: "
    "`test_what_has_changed_before_the_first_call_is_not_served` in `tests/inputs/test_inputs.py` and "
    "`tests/inputs/test_executed.py`.",
    (
        Row(
            "function",
            "Code that was traced, also what a decorator wraps",
            "bytecode, constants, names, default arguments; no file names, no line numbers",
            _CHANGED,
            "a decorated function",
        ),
        Row(
            "function",
            "Methods that Python generates (dataclasses, named tuples)",
            "found in the class that has them; their defaults and free variables count",
            _CHANGED,
            "a frozen dataclass default",
        ),
        Row(
            "function",
            "Code that dynamo runs without tracing it: `torch.compiler.allow_in_graph`, operators' functions "
            "for shapes, special methods of enumerations and metaclasses",
            "the same, with closure and environment; the source file if it reads tables",
            _CHANGED,
            "the helper of an allowed function",
        ),
        Row(
            "value",
            "Globals that such code reads, and their attributes",
            "their values; of dicts and lists the source file",
            _EXECUTED,
            "a global of another module",
        ),
        Row(
            "file",
            "Lambdas that a module hands to a registry, such as `Library.impl`",
            "the module's source file",
            "tests/inputs/test_inputs.py::test_a_lambda_that_a_registry_holds_counts_with_its_file",
        ),
        Row(
            "classes",
            "Attributes of classes that were looked up: numbers, text, constants of torch, enumeration "
            "members, patterns, tuples, fields of dataclasses",
            "their values",
            _CHANGED,
            "a class attribute",
        ),
        Row(
            "operator",
            "Operators of `torch.library`",
            "their schemas, which have default values",
            "tests/inputs/test_executed.py::test_the_schema_of_an_operator",
        ),
        Row(
            "object",
            "Members of enumerations and patterns of `re`",
            "the name, and the value or text",
            _CHANGED,
            "a member looked up by value",
        ),
        Row(
            "global",
            "Globals of Python's standard library",
            "their values",
            _CHANGED,
            "a global of the standard library",
        ),
        Row(
            "path",
            "Paths among these, such as `tempfile.tempdir`, unless below Python's own folder",
            "the path",
            _CHANGED,
            "a path of the standard library",
        ),
        Row(
            "table",
            "Tables by class of the standard library, such as `copyreg.dispatch_table`",
            "what they have for the classes of the trace",
            _EXECUTED,
            "a way of copying",
        ),
        Row(
            "attribute",
            "Docstrings and annotations that the code reads",
            "their content",
            _EXECUTED,
            "annotations",
        ),
        Row(
            "call",
            "`importlib.metadata.version`, functions marked `can_constant_fold_through`, questions about "
            "hardware, Triton's digest of a kernel's source",
            "the answer",
            _CHANGED,
            "a library's version",
        ),
        Row(
            "call",
            "Functions marked with `torch.compiler.assume_constant_result`",
            "what they answer when called again",
            _CHANGED,
            "an assumed constant",
        ),
        Row(
            "installed",
            "`importlib.util.find_spec`",
            "whether it found something",
            _CHANGED,
            "a module that is not installed",
        ),
        Row("", "Files of the wheel", "sha256", "tests/wheel/test_damage.py"),
    ),
    (_CHANGED, _EXECUTED),
)

_AT_BOTH = Group(
    "At load and at each call",
    "At a later call a difference is a miss. Tests, if no other is named: those above, and "
    "`test_what_may_change_between_calls_is_asked_at_each`.",
    (
        Row(
            "classes",
            "How names are found on classes of guarded values, of objects made in the trace, on enumerations",
            "which bases define each name that was looked up, and special methods; at each call only that "
            "none is new",
            _CHANGED,
            "an override",
        ),
        Row(
            "classes",
            "Methods of torch's classes that dynamo does not trace, such as `Module.__call__`",
            "their code; at each call only which function the call of modules is",
            _CHANGED,
            "the call of all modules",
        ),
        Row(
            "builtins",
            "Builtins such as `round`",
            "that no global hides them",
            _EXECUTED,
            "a global that hides a builtin",
        ),
        Row(
            "absent",
            "Attributes that the code asked modules and functions for in vain",
            "that they are not there",
            _EXECUTED,
            "an attribute that was tried",
        ),
        Row(
            "environment",
            'Variables of the environment: `os.environ["K"]`, `.get`, `in`, `os.getenv`',
            "the value, or that it is not set",
            _AT_CALL,
            "a variable read by get",
        ),
        Row(
            "call",
            "Functions about the process, such as `torch.distributed.is_initialized`",
            "the answer, as far as it is plain",
            _AT_CALL,
            "distributed",
        ),
        Row(
            "",
            "Functions, operators and classes compared by identity, such as `torch.relu`",
            "a name, and what kind of thing it names",
            _CHANGED,
            "another function of torch's",
        ),
    ),
    (_CHANGED, _EXECUTED, _AT_CALL),
)

_AT_CALLS = Group(
    "At each call",
    "Where it differs, the call is a miss. Test, if no other is named: "
    "`test_it_is_not_served_where_it_is_there` "
    "in `tests/inputs/test_asked.py`.",
    (
        Row(
            "",
            "Arguments, attributes of objects, globals, closures, torch's state: whatever dynamo guards",
            "dynamo's guards",
            "tests/differential/test_differential.py",
        ),
        Row(
            "",
            "Sets, tuples, dicts and numbers among these",
            "the types of all that they hold, and the order (not of sets of text or objects)",
            "tests/differential/test_differential.py::TestAlike::test_what_is_equal_and_not_alike",
        ),
        Row(
            "",
            "Numpy arrays among these",
            "the class, and that they can be written to",
            "tests/differential/test_differential.py::test_what_becomes_the_same_tensor_is_refused",
        ),
        Row(
            "",
            "Numbers traced for any value, and what the graph computes of them",
            "that they fit into 64 bits and a tensor's type, and that Python raises nothing",
            "tests/language/test_programs.py::TestNumbers::test_they_are_as_in_eager_code",
        ),
        Row(
            "",
            "What an object's `__dict__` has, where the code asks",
            "the names",
            "tests/inputs/test_executed.py::test_what_an_object_does_not_have_may_come",
        ),
        Row(
            "",
            'Keys that the code asked a dict for in vain, as in `try: cfg["gain"]`',
            "that they are not there",
            _ASKED,
        ),
        Row(
            "",
            'What the code found and did not look at, as in `try: cfg["gain"]`, `try: self.gain`',
            "that it is there",
            "tests/inputs/test_found.py::test_however_it_was_found",
        ),
        Row(
            "",
            "Keys of dicts that are no text or numbers, such as classes and objects",
            "that the one asked for is where it was",
            "tests/inputs/test_keys.py::test_a_key_that_is_no_text_has_to_be_the_one_at_its_place",
        ),
        Row(
            "",
            "Objects that the code met as an argument and as a global",
            "that they are one",
            "tests/inputs/test_found.py::test_an_argument_that_was_a_global_too_has_to_be_that",
        ),
        Row(
            "",
            "Attributes that an object's class or `__getattr__` answered, or nobody: methods, submodules, "
            "parameters, buffers",
            "that neither the object's `__dict__` nor an earlier class has them",
            _ASKED,
        ),
        Row(
            "",
            "Objects that the code told apart (`a is b`, `a == b` without an `__eq__`), or wrote to, beside "
            "others of their type",
            "that they are not the same object",
            _ASKED,
        ),
        Row(
            "",
            "The order of keywords, where the code goes through them",
            "the order",
            _ASKED,
        ),
        Row(
            "",
            "Memory of tensors that the call writes to",
            "that no other tensor of the graph lies there",
            "tests/capture/test_memory.py::test_what_shares_memory_with_what_is_written_is_refused",
        ),
        Row(
            "",
            "Hooks on modules that are called in the trace, global ones too",
            "which functions they are",
            "tests/inputs/test_inputs.py::TestHooks::test_a_hook_is_called",
            "BLOCK.norm-forward",
        ),
    ),
    (_ASKED,),
)

_AT_IMPORT = Group(
    "When the package is imported",
    "Where it differs, none of the wheel's entries is installed, with one warning.",
    (
        Row(
            "",
            "torch: its own code without a name, its operators, kernels that it brings",
            "version and source revision",
            "tests/wheel/test_unfit.py",
        ),
        Row(
            "",
            "Python: bytecode, classes that are built in",
            "minor version and magic number; code of the standard library as other code",
            "tests/wheel/test_unfit.py",
        ),
    ),
)

_NEVER = Group(
    "What does no harm",
    "The call is served.",
    (
        Row(
            "classes",
            "Attributes and methods that the trace never looked up",
            "",
            _UNUSED,
            "a replaced method that is not called",
        ),
        Row(
            "prepared",
            "The cache of einops, which loading an entry fills",
            "",
            "tests/inputs/test_executed.py::test_the_cache_of_einops",
        ),
    ),
)

GROUPS = (_AT_IMPORT, _AT_LOAD, _AT_BOTH, _AT_CALLS, _NEVER)
ROWS = tuple(each for group in GROUPS for each in group.rows)


_HEAD = """# What an entry depends on

<!-- Made from hatch_precompile/lower/dependencies/table.py by `make reference`. Change it there. -->

Dynamo does not guard what cannot change within its process, such as source code, nor what it looked for and
did not find. So every answer that a trace got without a guard becomes a *dependency*: it is recorded at the
build (`tracing/assumptions/`), and compared where the wheel runs. What cannot be compared
[stops the build](limits.md#what-a-process-has-for-itself).

The lists say what is compared of each thing, and the test.
"""


def inputs_page() -> str:
    """docs/inputs.md."""
    return "\n".join([_HEAD, *map(_section, GROUPS)])


def _section(group: Group) -> str:
    items = "".join(f"{_filled(_item(each, group.tests), '  ')}\n" for each in group.rows)
    return f"## {group.heading}\n\n{_filled(group.text)}\n\n{items}"


def _item(each: Row, named: tuple[str, ...]) -> str:
    text = f"- **{each.what}**" + (f": {each.kept}" if each.kept else "")
    return text if each.test in named else f"{text} (`{each.test}`)"


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, _WIDTH, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )
