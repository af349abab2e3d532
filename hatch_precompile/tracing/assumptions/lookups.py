"""Notes the names and keys that a trace has asked a live object for and did not get there.

Dynamo guards what it finds. Where it does not find something it goes on, to the class, to `__getattr__`, to
an `except`, and keeps no note of it. Here each such answer becomes a guard of dynamo's own kind, or a fact of
the entry. Every lookup that ends without a value passes one of these functions.

Seen in torch 2.13.0 and 2.14.1. Since 2.14 every attribute goes through one function (pytorch 187532).
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from hatch_precompile.static_lookup import attribute, modules
from hatch_precompile.torch_versions import way
from hatch_precompile.tracing.assumptions.notes import assumed, constants, elements, guard_on_attribute, stop

__all__ = ["modules_with", "watch_lookups"]


def watch_lookups(watch: Callable[..., None]) -> None:
    """Have `watch` put each of the functions below around dynamo's."""
    from torch._dynamo.variables import misc, nn_module, user_defined

    look_up = way("an attribute of an object")
    watch(user_defined.UserDefinedObjectVariable, look_up, _attribute_of_object)
    watch(nn_module.UnspecializedNNModuleVariable, "getattr_helper", _registered)
    watch(misc.SuperVariable, "_resolved_getattr_and_source", _above)
    for module in modules_with("raise_observed_exception"):
        watch(module, "raise_observed_exception", _raised)


def modules_with(name: str) -> list[ModuleType]:
    """The modules of dynamo's variables that have a function by that name among their globals."""
    import torch._dynamo.variables as package

    below = f"{package.__name__}."
    return [sys.modules[key] for key, own in modules() if key.startswith(below) and name in own]


def _attribute_of_object(self: Any, tx: Any, name: str, *, own: Any) -> Any:
    """An object's `__dict__` comes before what its class has, unless that is a data descriptor, and both come
    before `__getattr__`, which answers for registered modules, parameters and buffers."""
    looked_up = self.source is not None and name not in ("__class__", "__dict__")
    if looked_up and not _changed_by_trace(self, tx, name):
        cls = type(self.value)
        place, of_class = _of_class(cls, name)
        _not_of_classes(cls, place, name)
        shadowing = not inspect.isdatadescriptor(of_class) and _has_dict(self.value)
        if shadowing and name not in self.value.__dict__:
            _not_its_own(self.source, name)
    return own(self, tx, name)


def _has_dict(value: Any) -> bool:
    """Whether an object keeps attributes in a `__dict__`: a threading.local, for one, does not."""
    return bool(type(value).__dictoffset__) and type(attribute(value, "__dict__")) is dict


def _above(self: Any, tx: Any, name: str, *, own: Any) -> Any:
    """No class before the one in which `super()` finds a name may have it."""
    result = own(self, tx, name)
    cls = self.objvar.python_type()
    bases = (self.objvar.value if issubclass(cls, type) else cls).__mro__
    start = self.typevar.as_python_constant()
    for base in bases[bases.index(start) + 1 :] if start in bases else ():
        if name in vars(base):
            break
        _not_of_classes(base, 1, name)
    return result


def _of_class(cls: type, name: str) -> tuple[int, Any]:
    """How many classes a name was not found in, from the class itself on to its bases, and what the next has
    there."""
    for place, base in enumerate(cls.__mro__):
        if name in vars(base):
            return place, vars(base)[name]
    return len(cls.__mro__), None


def _changed_by_trace(variable: Any, tx: Any, name: str) -> bool:
    """Whether the traced code itself has given the object that attribute, or another `__dict__`."""
    pending = tx.output.side_effects.has_pending_mutation_of_attr
    return bool(pending(variable, name) or pending(variable, "__dict__"))


def _not_its_own(source: Any, name: str) -> None:
    from torch._dynamo.guards import GuardBuilder, install_guard

    guard = functools.partial(GuardBuilder.NOT_PRESENT_IN_GENERIC_DICT, attr=name)
    install_guard(source.make_guard(guard))


def _not_of_classes(cls: type, count: int, name: str) -> None:
    """Note that the first `count` classes of the __mro__, the class itself included, do not have a name."""
    if count:
        assumed().lacking.setdefault((cls, count), set()).add(name)


def _registered(self: Any, tx: Any, field: str, name_vt: Any, *, own: Any) -> Any:
    """Torch's `Module.__getattr__`, as dynamo does it: one dict after the other."""
    look_up = way("an attribute of most things")
    found = own(self, tx, field, name_vt)
    if found is None:
        variable = getattr(self, look_up)(tx, field).realize()
        inner = elements(variable)
        _without_key(variable if inner is None else inner, tx, name_vt)
    return found


def _without_key(variable: Any, tx: Any, key: Any) -> None:
    variable.install_dict_contains_guard(tx, [key])


def _raised(exc_type: type[BaseException], tx: Any, *, own: Any, **given: Any) -> Any:
    """What dynamo raises in the traced code's place, for a name or a key that is not there."""
    if issubclass(exc_type, (AttributeError, KeyError)):
        frame = sys._getframe(1)
        _missed(exc_type, tx, frame.f_code.co_name, frame.f_locals)
    return own(exc_type, tx, **given)


def _missed(kind: type[BaseException], tx: Any, function: str, asked: dict[str, Any]) -> None:
    """function: dynamo's, which has found nothing; asked: its local variables"""
    variable = asked.get("obj") or asked.get("self")
    # The function for functions' attributes has no variable, and has gone one step further. It has another
    # name in 2.14, and is no more in 2.15.
    of_function = function in ("fn_var_getattr", "fn_getattro_impl")
    source = asked["source"].base if of_function and asked["source"] else None
    source = source or getattr(variable, "source", None)
    if source is None:
        return  # the trace's own object: what it has follows from all else
    if issubclass(kind, KeyError):
        _missed_key(variable, tx, asked)
        return
    name = next((asked[each] for each in ("name_str", "attr_name", "name") if each in asked), None)
    if function == "call_method":  # whose name that is
        (name, *_), _ = constants(asked["args"][:1], {}) or ((None,), {})
    value = vars(variable).get("value") if variable is not None else None
    if not isinstance(name, str):
        stop("an attribute that an object does not have", "Ask for it with hasattr().")
    elif isinstance(value, type):
        _not_of_classes(value, len(value.__mro__), name)
    elif isinstance(value, ModuleType):
        _not_its_own(source, name)
    elif function != way("an attribute of an object") or not _has_dict(value):  # else it is noted already
        guard_on_attribute(source, name)


def _missed_key(variable: Any, tx: Any, asked: dict[str, Any]) -> None:
    key = asked.get("arg") or asked.get("key") or next(iter(asked.get("args") or ()), None)
    if not hasattr(variable, "install_dict_contains_guard"):
        return  # that of another object, and noted there
    if key is None:
        variable.install_dict_keys_match_guard()  # popitem() of an empty one
    else:
        _without_key(variable, tx, key)
