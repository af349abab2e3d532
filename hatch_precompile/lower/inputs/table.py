"""Everything an entry depends on: the table that docs/inputs.md is made from.

Guards cover the values that dynamo takes for variable. The rest it takes for constant, or does not note that
it was not there. The places where it does so are watched in tracing/folding/; writer.py makes
a record of each thing, and templates/inputs.py compares it.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["INPUTS", "Input", "inputs_page"]

_CHANGED = "tests/inputs/test_inputs.py::test_what_has_changed_before_the_first_call_is_not_served"
_EXECUTED = "tests/inputs/test_executed.py::test_what_has_changed_before_the_first_call_is_not_served"
_AT_CALL = "tests/inputs/test_inputs.py::test_what_may_change_between_calls_is_asked_at_each"
_REFUSED = "tests/inputs/test_inputs.py::test_what_cannot_be_compared_stops_the_build"
_ASKED = "tests/inputs/test_asked.py::test_it_is_not_served_where_it_is_there"
_UNUSED = "tests/inputs/test_inputs.py::test_what_the_trace_did_not_use_may_change"

_LEFT_OUT = "left out"
_MISS = "a miss"
_STOPS = "the build stops, with the line"


@dataclass(frozen=True)
class Input:
    """One kind of thing that an entry depends on.

    kind: of the record in an entry, "" where it is no record; what: the thing; how: what of it is kept;
    when: it is compared; then: what happens if it is otherwise; test: a pytest id without its parameters,
    and `case` one of these
    """

    kind: str
    what: str
    how: str
    when: str
    then: str
    test: str
    case: str = ""


INPUTS = (
    Input(
        "function",
        "Code that was traced: functions, methods, properties, what a decorator wraps",
        "bytecode, constants, names, default arguments; no file names, no line numbers",
        "load",
        _LEFT_OUT,
        _CHANGED,
        "a decorated function",
    ),
    Input(
        "function",
        "Methods that Python generates (dataclasses, named tuples)",
        "found in the class that has them; their defaults and free variables count",
        "load",
        _LEFT_OUT,
        _CHANGED,
        "a frozen dataclass default",
    ),
    Input(
        "function",
        "Code that dynamo runs instead of tracing it: functions marked with torch.compiler.allow_in_graph, "
        "operators' functions for shapes, special methods of enumerations and of metaclasses",
        "as above, with the closure and what it reads of the environment; with the source file if it reads "
        "tables",
        "load",
        _LEFT_OUT,
        _CHANGED,
        "the helper of an allowed function",
    ),
    Input(
        "value",
        "Globals that such code reads, of its own or another module, and attributes of objects among them",
        "their values; of dicts and lists the source file",
        "load",
        _LEFT_OUT,
        _EXECUTED,
        "a global of another module",
    ),
    Input(
        "file",
        "Lambdas that a module hands to a registry, such as `Library.impl`, where nothing names them",
        "the module's whole source file",
        "load",
        _LEFT_OUT,
        "tests/inputs/test_inputs.py::test_a_lambda_that_a_registry_holds_counts_with_its_file",
    ),
    Input(
        "",
        "Code that was traced and has no name",
        "nothing",
        "build",
        _STOPS,
        "tests/inputs/test_inputs.py::test_code_that_nothing_names_stops_the_build",
    ),
    Input(
        "classes",
        "How names are found on classes: those of guarded values, of objects made in the trace, enumerations",
        "for each name that was looked up, and for special methods, which bases define it, in their order",
        "load; that none is new at each call too",
        f"{_LEFT_OUT}; later {_MISS}",
        _CHANGED,
        "an override",
    ),
    Input(
        "classes",
        "Attributes of classes that are numbers, words, constants of torch, members, patterns, tuples, "
        "fields of dataclasses",
        "their values, for names that were looked up",
        "load",
        _LEFT_OUT,
        _CHANGED,
        "a class attribute",
    ),
    Input(
        "classes",
        "Methods of torch's own classes that dynamo knows and does not trace, such as `Module.__call__`",
        "their code; for the call of modules also which function it is",
        "load; the call of modules at each call too",
        f"{_LEFT_OUT}; later {_MISS}",
        _CHANGED,
        "the call of all modules",
    ),
    Input(
        "classes",
        "Attributes and methods that the trace never looked up",
        "nothing",
        "never",
        "served",
        _UNUSED,
        "a replaced method that is not called",
    ),
    Input(
        "prepared",
        "The cache of einops, which dynamo fills before it looks at it",
        "nothing",
        "load: it is filled",
        "served",
        "tests/inputs/test_executed.py::test_the_cache_of_einops",
    ),
    Input(
        "operator",
        "Operators of `torch.library`",
        "their schemas, which have default values",
        "load",
        _LEFT_OUT,
        "tests/inputs/test_executed.py::test_the_schema_of_an_operator",
    ),
    Input(
        "object",
        "Members of enumerations and patterns of `re`",
        "the name, and the value or text",
        "load",
        _LEFT_OUT,
        _CHANGED,
        "a member looked up by value",
    ),
    Input(
        "global",
        "Globals of Python's standard library, on which dynamo puts no guard",
        "their values",
        "load",
        _LEFT_OUT,
        _CHANGED,
        "a global of the standard library",
    ),
    Input(
        "path",
        "Those that are paths, such as `tempfile.tempdir`; not below Python's own folder",
        "the path",
        "load",
        _LEFT_OUT,
        _CHANGED,
        "a path of the standard library",
    ),
    Input(
        "table",
        "Tables by class of the standard library, such as `copyreg.dispatch_table`",
        "what they have for the classes of the trace, or that it is nothing",
        "load",
        _LEFT_OUT,
        _EXECUTED,
        "a way of copying",
    ),
    Input(
        "",
        "Objects of the standard library that hold other values, and all others met without a guard",
        "nothing",
        "build",
        _STOPS,
        _REFUSED,
        "asks_the_main_thread",
    ),
    Input(
        "builtins",
        "Builtins such as `round`",
        "that no global hides them",
        "load and each call",
        f"{_LEFT_OUT}; later {_MISS}",
        _EXECUTED,
        "a global that hides a builtin",
    ),
    Input(
        "absent",
        "Attributes that modules and functions do not have, where the code asks for them",
        "that they are not there",
        "load and each call",
        f"{_LEFT_OUT}; later {_MISS}",
        _EXECUTED,
        "an attribute that was tried",
    ),
    Input(
        "attribute",
        "Docstrings and annotations that the code reads",
        "their content",
        "load",
        _LEFT_OUT,
        _EXECUTED,
        "annotations",
    ),
    Input(
        "",
        "What an object's `__dict__` has, where the code asks",
        "the names",
        "each call",
        _MISS,
        "tests/inputs/test_executed.py::test_what_an_object_does_not_have_may_come",
    ),
    Input(
        "",
        'Keys that the code asked a dict for in vain, as in `try: cfg["gain"]`, `except KeyError`',
        "that they are not there",
        "each call",
        _MISS,
        _ASKED,
    ),
    Input(
        "",
        "Attributes for which an object's class, a base of it or `__getattr__` answered, or nobody: methods, "
        "registered submodules, parameters and buffers, what a wrapper asks for in what it wraps",
        "that neither the object's `__dict__`, nor a class before the one that answered has them",
        "each call",
        _MISS,
        _ASKED,
    ),
    Input(
        "",
        "Objects that the code has told apart (`a is b`, `a == b` without an `__eq__`), and those that it "
        "has written to, beside others of their type",
        "that they are not the same object",
        "each call",
        _MISS,
        _ASKED,
    ),
    Input(
        "",
        "The order of keywords, where the code goes through them, also after handing them on",
        "the order",
        "each call",
        _MISS,
        _ASKED,
    ),
    Input(
        "",
        "Memory of tensors that the call writes to",
        "that no other tensor of the graph lies there",
        "each call",
        _MISS,
        "tests/capture/test_memory.py::test_what_shares_memory_with_what_is_written_is_refused",
    ),
    Input(
        "environment",
        'Variables of the environment: `os.environ["K"]`, `.get`, `in`, `os.getenv`',
        "the value, or that it is not set",
        "load and each call",
        f"{_LEFT_OUT}; later {_MISS}",
        _AT_CALL,
        "a variable read by get",
    ),
    Input("", "The environment as a whole", "nothing", "build", _STOPS, _REFUSED, "counts_variables"),
    Input(
        "call",
        "Functions about the process whose answer dynamo puts into the graph, such as "
        "`torch.distributed.is_initialized`",
        "the answer, as far as it is plain",
        "load and each call; those about hardware at load only",
        f"{_LEFT_OUT}; later {_MISS}",
        _AT_CALL,
        "distributed",
    ),
    Input(
        "call",
        "`importlib.metadata.version`, functions marked `can_constant_fold_through`",
        "the answer",
        "load",
        _LEFT_OUT,
        _CHANGED,
        "a library's version",
    ),
    Input(
        "call",
        "Functions marked with torch.compiler.assume_constant_result",
        "the answer; they are called again",
        "load",
        _LEFT_OUT,
        _CHANGED,
        "an assumed constant",
    ),
    Input(
        "",
        "The same, where arguments or answer are no plain values",
        "nothing",
        "build",
        _STOPS,
        _REFUSED,
        "assumes_an_object",
    ),
    Input(
        "installed",
        "`importlib.util.find_spec`",
        "whether it found something",
        "load",
        _LEFT_OUT,
        _CHANGED,
        "a module that is not installed",
    ),
    Input(
        "",
        "`hash()` of anything but numbers, `id()`",
        "nothing",
        "build",
        _STOPS,
        _REFUSED,
        "hashes_text",
    ),
    Input(
        "",
        "The order of sets of anything but numbers; `sorted()` of them and operations on sets are no matter",
        "nothing",
        "build",
        _STOPS,
        _REFUSED,
        "loops_over_names",
    ),
    Input(
        "",
        "Hooks on modules that are called in the trace, global ones too",
        "which functions they are",
        "each call",
        _MISS,
        "tests/inputs/test_inputs.py::TestHooks::test_a_hook_is_called",
        "BLOCK.norm-forward",
    ),
    Input(
        "",
        "Functions, operators and classes that are compared by identity, such as `torch.relu`",
        "a name, and what kind of thing it names",
        "load and each call",
        f"{_LEFT_OUT}; later {_MISS}",
        _CHANGED,
        "another function of torch's",
    ),
    Input(
        "",
        "Arguments, attributes of objects, globals, closures, torch's state: whatever dynamo guards",
        "dynamo's guards",
        "each call",
        _MISS,
        "tests/differential/test_differential.py",
    ),
    Input(
        "",
        "Sets, tuples, dicts and numbers among these",
        "their types, those of all that they hold, and the order: 1, 1.0 and True are equal; of sets of text "
        "and of objects no order",
        "each call",
        _MISS,
        "tests/differential/test_differential.py::TestAlike::test_what_is_equal_and_not_alike",
    ),
    Input(
        "",
        "Numbers traced for any value, `dynamic-numbers`, and what the graph computes of them",
        "that they fit into 64 bits, and into the type of a tensor they meet, and that Python raises nothing",
        "each call",
        _MISS,
        "tests/language/test_programs.py::TestNumbers::test_they_are_as_in_eager_code",
    ),
    Input(
        "",
        "Arrays of numpy among these, of which dynamo looks at the tensor that they become",
        "the class, and that they can be written to",
        "each call",
        _MISS,
        "tests/differential/test_differential.py::test_what_becomes_the_same_tensor_is_refused",
    ),
    Input(
        "",
        "torch: its own code without a name, its operators, kernels that it brings",
        "version and source revision",
        "import",
        "the wheel's entries are not installed, with one warning",
        "tests/wheel/test_unfit.py",
    ),
    Input(
        "",
        "Python: bytecode, classes that are built in",
        "minor version and magic number; code of the standard library as other code",
        "import",
        "the wheel's entries are not installed, with one warning",
        "tests/wheel/test_unfit.py",
    ),
    Input(
        "",
        "Files of the wheel",
        "sha256",
        "load",
        _LEFT_OUT,
        "tests/wheel/test_damage.py",
    ),
)


_HEAD = """# What an entry depends on

<!-- Made from hatch_precompile/lower/inputs/table.py by `make reference`. Change it there. -->

A trace asks the program's objects questions, and rests on every answer: "this value", "no such key", "not in
its `__dict__`, so the class's", "another object", "in this order". Dynamo guards values. What cannot change
within its process, such as source code, and what it looked for and did not find, it does not guard; and a
wheel's entries come into other processes. So every answer that dynamo has no guard for is an *input* of the
entry: it is recorded when the wheel is built and compared where the wheel runs, or the build stops and says
why. Each kind is watched where dynamo itself asks (`tracing/folding/`), not program by program.

Inputs are compared when an entry is *loaded*, that is by the first call that gets past its first checks. What
may change between two calls is asked again at *each call*, among the guards. An entry that is *left out* is
not used; a warning says why.

| what | what is kept of it | compared at | if it is otherwise | test |
| --- | --- | --- | --- | --- |
"""


def inputs_page() -> str:
    """docs/inputs.md."""
    rows = [
        f"| {each.what} | {each.how} | {each.when} | {each.then} | `{each.test}{_case(each)}` |\n"
        for each in INPUTS
    ]
    return _HEAD + "".join(rows)


def _case(each: Input) -> str:
    return f"[{each.case}]" if each.case else ""
