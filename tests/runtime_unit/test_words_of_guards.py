"""What is said of a guard that refused, for the kinds of checks that say more than what is needed."""

from __future__ import annotations

import marshal
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest

from hatch_precompile.lower.guards.checks import Kind
from hatch_precompile.lower.guards.explanation_data import words_of
from hatch_precompile.lower.guards.lowering import function_codes
from hatch_precompile.runtime import runtime
from tests.support.guard_text import functions_of

explanation, refusal = runtime("explaining.explanation"), runtime("explaining.refusal")


class Part:
    scale = 2.0


class Net:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


def said(text: str, kind: Kind, values: dict[str, Any], **constants: Any) -> tuple[str, str, str]:
    """The line that refuses, its kind and its words."""
    functions = functions_of(text, kind)
    words = marshal.loads(marshal.dumps(words_of(functions, ["the first", "the second"]), 2))
    namespace: dict[str, Any] = {**constants, "entry": SimpleNamespace(hits=0)}
    namespace["alike"] = runtime("values.constants").alike
    *parts, code = function_codes("\n\n".join(function.text() for function in functions), "<guards>")
    namespace.update({part.co_name: FunctionType(part, namespace) for part in parts})
    guard = FunctionType(code, namespace, "guard")
    stop = refusal.first_failure(guard, words, values)
    assert stop is not None
    if stop.check is None:
        return stop.line, "REACHED", stop.missing
    return stop.line, *explanation._words(SimpleNamespace(guard=guard), stop.check, stop)


def guard(*lines: str) -> str:
    return "def guard(L):\n" + "".join(f"    {line}\n" for line in (*lines, "return True"))


NET = ("v0 = L['self']", "v1 = v0.__dict__")


@pytest.mark.parametrize(
    ("kind", "lines", "constants", "words"),
    [
        (
            "DICT_LACKS",
            (*NET, "if not (dict.keys(v1).isdisjoint(('bias', 'scale'))): return False"),
            {},
            "built without an attribute 'scale' of self, which has one now",
        ),
        (
            "DICT_LACKS",
            (*NET, "v2 = v1['_modules']", "if not (dict.keys(v2).isdisjoint(('0', 'c'))): return False"),
            {},
            "built without a key '0' in self._modules, which has it now",
        ),
        (
            "DICT_LACKS",
            (*NET, "v2 = v1['table']", "if not (dict.keys(v2).isdisjoint((c1,))): return False"),
            {"c1": Part},
            "built without a key (the second,) in self.table, which has it now",
        ),
        (
            "DICT_LACKS",
            (*NET, "v2 = v1['table']", "if not (dict.keys(v2).isdisjoint((int,))): return False"),
            {},
            "built without a key (int,) in self.table, which has it now",
        ),
        (
            "ABSENT_GLOBAL",
            ("if not (dict.keys(G).isdisjoint(('len', 'max'))): return False",),
            {"G": {"__name__": "models", "max": 1}},
            "built without a global 'max' in models, which has one now",
        ),
        (
            "ABSENT_IN_CLASS",
            ("if not (class_lacks(c0, 1, ('scale', 'shift'))): return False",),
            {"c0": Part, "class_lacks": lambda *_: False},
            "built without 'scale' in the class Part, which has it now",
        ),
        (
            "SPECIAL_METHODS",
            ("if not (class_has(c0, c1, ('__len__',))): return False",),
            {"c0": Part, "c1": frozenset({"__len__", "__doc__"}), "class_has": lambda *_: False},
            "the class Part has got or lost __doc__, __len__ since the build",
        ),
        (
            "TYPE_MATCH",
            ("v0 = G['helper']", "if v0.__dict__: v0 = plain_function(v0)"),
            {"G": {"helper": 7}},
            "G['helper'] is 7; needed: G['helper'].__dict__",
        ),
        (
            "IDENTITY",
            (*NET, "v2 = L['x']", "if not (v0 is not v2): return False"),
            {},
            "self and x are one object; the entry was built with two",
        ),
        (
            "MEMORY",
            (*NET, "v2 = L['x']", "if not (apart_in_memory((v0,), (v2, c0))): return False"),
            {"c0": 1, "apart_in_memory": lambda *_: False},
            "of self, x, the first two lie in the same memory, and the call writes to one of them",
        ),
        (
            "ENVIRONMENT",
            ("if not (environment('DEPTH') == '3'): return False",),
            {"environment": lambda _: None},
            "the environment variable DEPTH, which the traced code reads, is not as it was at the build",
        ),
        (
            "DICT_ORDER",
            (*NET, "v2 = v1['table']", "if not (alike(list(dict.keys(v2)), c0)): return False"),
            {"c0": ["a", "b"]},
            "self.table is a dict of 2; needed: list(dict.keys(self.table)) == ['a', 'b'], of the same types",
        ),
        (
            "EQUALS_MATCH",
            (*NET, "v2 = v1['scale']", "if not (type(v2) is float and alike(v2, 0.0)): return False"),
            {},
            "self.scale is 2.5; needed: self.scale == 0.0, of the same types",
        ),
        (
            "TYPE_MATCH",
            (*NET, "v2 = v1['_modules']", "v3 = v2['0']", "if not (type(v3) is c1): return False"),
            {"c1": Net},
            "self[0] is test_words_of_guards.Part; needed: type(self[0]) is the second",
        ),
        (
            "TYPE_MATCH",
            (
                *(*NET, "v2 = v1['table']", "v2_keys = list(dict.keys(v2))"),
                *("v3 = dict.__getitem__(v2, v2_keys[0])", "if not (type(v3) is c1): return False"),
            ),
            {"c1": Net},
            "self.table[0] is 7; needed: type(self.table[0]) is the second",
        ),
        (
            "TYPE_MATCH",
            (
                *(*NET, "v2 = v1['_modules']", "v2_keys = list(dict.keys(v2))"),
                *("v3 = dict.__getitem__(v2, v2_keys[0])", "if not (type(v3) is c1): return False"),
            ),
            {"c1": Net},
            "self[0] is test_words_of_guards.Part; needed: type(self[0]) is the second",
        ),
    ],
)
def test_a_kind_of_check_says_what_is_other(
    kind: Kind, lines: tuple[str, ...], constants: dict[str, Any], words: str
) -> None:
    net = Net(scale=2.5, _modules={"0": Part()}, table={Part: 7, int: 8})
    line, found, reason = said(guard(*lines), kind, {"self": net, "x": net}, **constants)
    assert found == kind
    assert lines[-1] in (line, f"if not ({line}): return False")
    assert reason.replace("is a tests.runtime_unit.", "is ").replace("is a test_", "is test_") == words


PARTS = """
def p0(v2):
    v3 = v2.__dict__
    v4 = v3['scale']
    if not (v4 == 2.5): return False
    return (v4,)


"""


def test_a_part_says_of_which_value_it_refused_and_what_it_gave() -> None:
    lines = [*NET, "v2 = v1['first']", "if (r := p0(v2)) is False: return False", "(v4,) = r"]
    lines += ["v5 = v1['second']", "if (r := p0(v5)) is False: return False", "(v7,) = r"]
    lines += ["if not (v4 is not v7): return False"]
    first, other = Net(scale=2.5), Net(scale=3.0)
    text = PARTS + guard(*lines)
    refused = said(text, "EQUALS_MATCH", {"self": Net(first=first, second=other)})
    assert refused[2] == "self.second.scale is 3.0; needed: self.second.scale == 2.5"
    assert said(text, "IDENTITY", {"self": Net(first=first, second=first)})[2].startswith(
        "self.first.scale and self.second.scale are one object"
    )
    missing = said(text, "EQUALS_MATCH", {"self": Net(first=first, second=Net())})
    assert missing == ("v4 = v3['scale']", "REACHED", "self.second.scale")


def test_without_words_nothing_is_told_and_nothing_raised() -> None:
    (code,) = function_codes(guard("if not (L is None): return False"), "<guards>")
    stop = refusal.first_failure(FunctionType(code, {}), None, {})
    assert (stop.check, stop.missing, stop.line, stop.path("v3")) == (None, "", "", "v3")
