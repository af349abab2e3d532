"""Whether two calls agree: their outputs, the inputs as they left them, their gradients.

Tensors, arrays and floats agree within the tolerances of torch.testing for their dtype; a float has those of
float32, because that is where it comes from as a rule. Everything else must be equal. What cannot be compared
is no disagreement, but it is said.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import reprlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from hatch_precompile.errors import VerifyError
from hatch_precompile.static_lookup import attribute, dict_of, is_a
from hatch_precompile.tracing.pytrees import children, inner_tensors, plain

__all__ = ["Agreement", "compare", "run_backward", "run_backward_of_ones"]

_FLOAT = {"rtol": 1.3e-6, "atol": 1e-5}
# Of these there is one object for each value.
_SINGLE = (enum.Enum, torch.dtype, torch.layout, torch.memory_format)
_NO_OBJECTS = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)


@dataclass
class Agreement:
    """How far two calls that agree are apart. `notes`: what was not, or only in part, compared."""

    largest: float = 0.0
    notes: list[str] = field(default_factory=list)


def run_backward(output: Any) -> None:
    """The backward pass from the sum of every output that needs a gradient."""
    losses = [
        (torch.view_as_real(tensor) if tensor.is_complex() else tensor).sum()
        for _, tensor in _tensors_in(output, "", set(), objects=False)
        if isinstance(tensor, torch.Tensor) and tensor.requires_grad
    ]
    if losses:
        sum(losses[1:], losses[0]).backward()


def run_backward_of_ones(output: Any) -> None:
    """The same where nothing can be computed beside the graph: gradients are made on the CPU, and moved."""
    tensors = [
        tensor
        for _, tensor in _tensors_in(output, "", set(), objects=False)
        if is_a(tensor, torch.Tensor) and tensor.requires_grad
    ]
    ones = [torch.ones(tensor.shape, dtype=tensor.dtype).to(tensor.device) for tensor in tensors]
    torch.autograd.backward(tensors, ones)


def compare(
    actual: Mapping[str, Any],
    expected: Mapping[str, Any],
    label: str,
    *,
    values: bool = True,
    rounded: str | None = None,
    noise: Callable[[], Mapping[str, float]] = dict,
    few: bool = False,
) -> Agreement:
    """How far they are apart, by name. Raises VerifyError with a sentence where they do not agree.

    values: compare what tensors and numbers hold, else only their kinds: types, shapes and dtypes;
    rounded: "bfloat16" or "int8" where factors were rounded to that: float32 agrees as they do; noise: gives
    by name, of gradients that do not agree, how far rounding brings them from one another; few: judge tensors
    of few elements as a whole, too, where nobody has chosen what they are.
    """
    comparison = _Comparison(label, values, rounded, noise, many=1 if few else _MANY)
    comparison.require(list(actual) == list(expected), f"has {list(actual)}, with eager {list(expected)}")
    for name, value in actual.items():
        if name == "gradients":
            comparison.gradients(value, expected[name])
        else:
            comparison.compare(value, expected[name], name)
    return comparison.found


class _Comparison:
    def __init__(
        self,
        label: str,
        values: bool,
        rounded: str | None,
        noise: Callable[[], Mapping[str, float]],
        many: int,
    ) -> None:
        self.many = many
        self.label = label
        self.noise = noise
        self.values = values
        self.rounded = rounded
        self.found = Agreement()

    def require(self, condition: bool, text: str) -> None:
        if not condition:
            raise VerifyError(f"{self.label}: {text}")

    def note(self, text: str) -> None:
        if text not in self.found.notes:
            self.found.notes.append(text)

    def gradients(self, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
        """Those of parameters, by name. One that is not there is 0; torch.compile gives zeros for it."""
        rounded = []
        for name in dict.fromkeys([*ours, *theirs]):
            path = f"gradients[{name!r}]"
            one: Any = ours.get(name)
            other: Any = theirs.get(name)
            if one is None or other is None:
                only, where = (one, "with the wheel") if other is None else (other, "with eager code")
                none = not self.values or not bool(only.any())
                self.require(none, f"{path} is there only {where}, and is not 0")
                self.note(f"{path} is 0 {where}, and not there otherwise")
                continue
            try:
                self.compare(one, other, path)
            except VerifyError:
                noise = self.noise().get(name, 0.0)
                apart = (one.double() - other.double()).abs().max() if one.shape == other.shape else None
                if apart is None or not float(apart) <= noise:
                    raise
                rounded.append(name)
        if rounded:
            more = f" and {len(rounded) - 1} more" if rounded[1:] else ""
            self.note(f"the gradients of {rounded[0]}{more} are as far from eager as rounding brings them")

    def compare(self, ours: Any, theirs: Any, path: str) -> None:
        if ours is theirs:
            return
        self.require(
            _same_class(type(ours), type(theirs)), f"{path} is a {_name(ours)}, with eager a {_name(theirs)}"
        )
        if isinstance(ours, torch.Tensor):
            self._tensors(ours, theirs, path)
        elif _is_numpy(ours):
            self._arrays(ours, theirs, path)
        elif (items := _items(ours)) is not None:
            self._containers(items, _items(theirs) or [], path)
        elif isinstance(ours, (float, complex)):
            if self.values:
                self._close(ours, theirs, path, **_FLOAT)
        elif not _has_equality(ours):
            self._objects(ours, theirs, path)
        else:
            self._equal(ours, theirs, path)

    def _containers(self, ours: list[tuple[str, Any]], theirs: list[tuple[str, Any]], path: str) -> None:
        keys, other_keys = [key for key, _ in ours], [key for key, _ in theirs]
        self.require(
            keys == other_keys,
            f"{path} has {len(keys)} items, with eager {len(other_keys)}: "
            f"{_first_difference(keys, other_keys)}",
        )
        for (key, value), (_, other) in zip(ours, theirs, strict=True):
            self.compare(value, other, path + key)

    def _equal(self, ours: Any, theirs: Any, path: str) -> None:
        """What has an == of its own. A type's == may itself raise, or answer with something else."""
        if not self.values:
            return
        try:
            equal = bool(ours == theirs)
        except Exception as error:
            self.note(f"{path} is a {_name(ours)}, which was not compared: its == raised {_words(error)}")
            return
        self.require(equal, f"{path} is {reprlib.repr(ours)}, with eager {reprlib.repr(theirs)}")

    def _objects(self, ours: Any, theirs: Any, path: str) -> None:
        """What is equal to nothing but itself: the tensors it holds are all that can be compared."""
        tensors = dict(_tensors_in(ours, path, set(), objects=True))
        others = dict(_tensors_in(theirs, path, set(), objects=True))
        self.require(
            list(tensors) == list(others),
            f"{path}, a {_name(ours)}, holds {len(tensors)} tensors, with eager {len(others)}: "
            f"{_first_difference(list(tensors), list(others))}",
        )
        for place, tensor in tensors.items():
            self.compare(tensor, others[place], place)
        what = "of which only the tensors were compared" if tensors else "which was not compared"
        self.note(f"{path} is a {_name(ours)}, {what} with eager")

    # -- tensors ---------------------------------------------------------------------------------

    def _tensors(self, ours: torch.Tensor, theirs: torch.Tensor, path: str) -> None:
        nested = ours.is_nested and theirs.is_nested  # jagged sizes are other symbols in each call
        for what in ("dtype", "device", "layout", *(() if nested else ("shape",))):
            value, other = getattr(ours, what), getattr(theirs, what)
            value, other = (tuple(value), tuple(other)) if what == "shape" else (value, other)
            self.require(value == other, f"{path} has {what} {value}, with eager {other}")
        self.require(
            ours.requires_grad or not theirs.requires_grad, f"{path} needs no gradient, with eager it does"
        )
        if nested:
            parts, others = ours.unbind(), theirs.unbind()
            self.require(
                len(parts) == len(others), f"{path} has {len(parts)} parts, with eager {len(others)}"
            )
            for number, (part, other) in enumerate(zip(parts, others, strict=True)):
                self._tensors(part, other, f"{path}[{number}]")
            return
        if ours.layout is torch.strided and _strides(ours) != _strides(theirs):
            self.note(f"{path} has strides {ours.stride()}, with eager {theirs.stride()}")
        wrapped = inner_tensors(ours)
        if wrapped is not None:
            self._wrapped(ours, theirs, wrapped, path)
        elif self.values and ours.is_meta:
            self.note(f"{path} is on the meta device and has no values to compare")
        elif self.values:
            self._plain_tensors(plain(ours), plain(theirs), path)

    def _wrapped(
        self, ours: torch.Tensor, theirs: torch.Tensor, wrapped: tuple[list[str], Any], path: str
    ) -> None:
        names, context = wrapped
        other_names, other_context = inner_tensors(theirs) or ([], None)
        self.require(
            list(names) == list(other_names), f"{path} wraps {list(names)}, with eager {list(other_names)}"
        )
        for name in names:
            self.compare(getattr(ours, name), getattr(theirs, name), f"{path}.{name}")
        self.compare(context, other_context, f"{path}.__tensor_flatten__()[1]")

    def _plain_tensors(self, ours: torch.Tensor, theirs: torch.Tensor, path: str) -> None:
        if ours.layout is torch.sparse_coo:
            ours, theirs = ours.coalesce(), theirs.coalesce()
        tolerances = {}
        if ours.dtype.is_floating_point and ours.dtype.itemsize == 1:  # torch.testing has none for float8
            step = torch.finfo(ours.dtype).eps
            tolerances = {"rtol": 2 * step, "atol": step / 8}
            ours, theirs = ours.float(), theirs.float()
        self._close(ours, theirs, path, **tolerances)

    def _close(self, ours: Any, theirs: Any, path: str, **tolerances: float) -> None:
        try:
            if not _are_close(ours, theirs):
                torch.testing.assert_close(ours, theirs, equal_nan=True, **tolerances)
        except AssertionError as error:
            whole = _as_a_whole(ours, theirs, rounded=self.rounded, many=self.many)
            if not whole.agree:
                text = f"{self.label}: {path} differs from eager: {error}{whole.words}"
                raise VerifyError(text) from None
        except Exception as error:
            self.note(f"{path} is a {_name(ours)}, which torch.testing cannot compare: {_words(error)}")
            return
        ours, theirs = torch.as_tensor(ours), torch.as_tensor(theirs)
        if ours.layout is torch.strided and ours.numel() and not ours.is_quantized:
            wide = torch.complex128 if ours.is_complex() else torch.float64
            apart = (ours.to(wide) - theirs.to(wide)).abs().nan_to_num(0.0, 0.0)  # inf - inf, nan - nan
            self.found.largest = max(self.found.largest, float(apart.max()))

    # -- arrays ----------------------------------------------------------------------------------

    def _arrays(self, ours: Any, theirs: Any, path: str) -> None:
        numpy = sys.modules["numpy"]
        for what in ("dtype", "shape"):
            value, other = getattr(ours, what), getattr(theirs, what)
            self.require(value == other, f"{path} has {what} {value}, with eager {other}")
        if not self.values:
            return
        mine, other = numpy.asarray(ours), numpy.asarray(theirs)
        kind = mine.dtype.kind
        if kind == "O":
            self.compare(mine.ravel().tolist(), other.ravel().tolist(), path)
        elif kind in "fc" and mine.dtype.itemsize <= (8 if kind == "f" else 16):
            native = mine.dtype.newbyteorder("=")
            # Copies: torch reads neither strides below zero nor what may not be written to.
            self._close(torch.tensor(mine.astype(native)), torch.tensor(other.astype(native)), path)
        elif kind in "fc":
            self.require(
                bool(numpy.allclose(mine, other, equal_nan=True)),
                f"{path} differs from eager: {reprlib.repr(ours)} and {reprlib.repr(theirs)}",
            )
        else:
            if kind in "mM":  # no time is equal to itself
                mine, other = mine.astype("i8"), other.astype("i8")
            self.require(
                bool(numpy.array_equal(mine, other)),
                f"{path} is {reprlib.repr(ours)}, with eager {reprlib.repr(theirs)}",
            )


# Relative and absolute, as the documentation of torch.testing.assert_close has them.
_TOLERANCES = {torch.float32: (1.3e-6, 1e-5), torch.float64: (1e-7, 1e-7)}


def _are_close(ours: Any, theirs: Any) -> bool:
    """Whether assert_close need not be asked, which imports torch.distributed for it."""
    if any(type(each) is not torch.Tensor or each.layout is not torch.strided for each in (ours, theirs)):
        return False
    if any(getattr(ours, name) != getattr(theirs, name) for name in ("dtype", "shape", "device")):
        return False
    relative, absolute = _TOLERANCES.get(ours.dtype, (0.0, 0.0))
    return bool(relative) and torch.allclose(ours, theirs, relative, absolute, equal_nan=True)


# Of the root mean square of the values, that of the difference. Sums of products in another order are this
# far apart after some layers: elements near zero by many times their own size, single ones by five times as
# much as the rest. A library that computes in the next smaller type is further away, by ten times or more.
_AS_A_WHOLE = {torch.float64: 1e-10, torch.float32: 3e-5, torch.float16: 2.5e-3, torch.bfloat16: 2e-2}


@dataclass(frozen=True)
class _AsAWhole:
    """Whether tensors agree as a whole. words: how far they are from that, where it has been found out."""

    agree: bool
    words: str = ""


_NOT_ASKED = _AsAWhole(agree=False)
"""Of what is no large tensor, or has elements that must be close."""


def _as_a_whole(ours: Any, theirs: Any, *, rounded: str | None, many: int) -> _AsAWhole:
    """Whether a large tensor, of which some elements are not close, is close as a whole; of half precision,
    any of several elements.

    many: elements of a large one; rounded: float32 came from factors of a smaller type, and a small tensor
    may have no element that is close
    """
    if rounded and isinstance(ours, float):
        ours, theirs = torch.tensor(ours), torch.tensor(theirs)
    limit = _AS_A_WHOLE.get(ours.dtype) if isinstance(ours, torch.Tensor) else None
    if limit is None or ours.layout is not torch.strided:
        return _NOT_ASKED
    rounded = rounded if ours.dtype is torch.float32 else None
    if rounded:
        limit = _ROUNDED[rounded] if ours.numel() >= _MANY else _FEW_AS_A_WHOLE
    elif ours.numel() < (_SEVERAL if ours.dtype.itemsize == 2 else many):
        return _NOT_ASKED
    found, expected = ours.detach().double(), theirs.detach().double()
    finite = expected.isfinite()
    if not bool((finite == found.isfinite()).all()) or not bool(finite.any()):
        return _NOT_ASKED
    if not torch.equal(found[~finite].nan_to_num(), expected[~finite].nan_to_num()):
        return _NOT_ASKED
    found, expected = found[finite], expected[finite]
    apart, size = (found - expected).abs(), expected.abs()
    # A mask's large numbers would make everything beside them small: they are judged by themselves.
    large = size > _FAR_AWAY * size[size > 0].median() if bool(size.any()) else size > 0
    if bool((apart[large] > 5 * limit * size[large]).any()):
        return _NOT_ASKED
    apart, size = apart[~large], size[~large]
    whole = float(apart.square().mean().sqrt() / size.square().mean().sqrt())
    single = float(apart.max() / size.max())
    return _AsAWhole(
        whole <= limit and single <= 5 * limit,
        f"\nOf the root mean square of the values, that of the difference is {whole:.1e} (up to {limit:.1e} "
        f"allowed); of the largest value, the largest difference {single:.1e} (up to {5 * limit:.1e} allowed)"
        + (_WHY_ROUNDED.format(rounded) if rounded else ""),
    )


_FAR_AWAY = 1e3
"""Times the median of what is not zero, from which on a number tells nothing about the others."""

_MANY = 256
"""Elements, from which on the mean says something."""

_SEVERAL = 2
"""Elements of half precision. Eager code rounds what is between its operators, and a kernel does not: one
near zero is as far off as the others, which is many times its own size."""

_FEW_AS_A_WHOLE = 1e-1
"""Of fewer whose factors were rounded: a sum of products may be small where the products are not."""

_ROUNDED = {"bfloat16": _AS_A_WHOLE[torch.bfloat16], "int8": 5e-2}
"""Of float32 whose factors were rounded. Twelve layers of BERT, whose inputs are rounded to int8 for each
row, are 2.4e-2 from those of float32, and 2.1e-2 from themselves where a millionth was added to what goes
in."""

_WHY_ROUNDED = (
    "\nIt rounds factors to {}, because the model is of that type, or because of "
    'float32-matmul-precision = "medium"'
)


def _items(value: Any) -> list[tuple[str, Any]] | None:
    """What a container holds, each with the key that leads to it; None for what is none."""
    if is_a(value, Mapping):
        return [(f"[{key!r}]", item) for key, item in value.items()]
    if attribute(type(value), "__dataclass_fields__") is not None:
        names = [each.name for each in dataclasses.fields(type(value))]
        # A field may be a property: an answer is compared as whoever gets it sees it.
        return [(f".{name}", getattr(value, name)) for name in names if hasattr(value, name)]
    known = children(value)
    if known is not None:
        return known
    if is_a(value, Sequence) and not is_a(value, str, bytes, bytearray, memoryview, range):
        return [(f"[{index}]", item) for index, item in enumerate(value)]
    return None


def _tensors_in(value: Any, path: str, seen: set[int], *, objects: bool) -> Iterator[tuple[str, Any]]:
    """The tensors and arrays in a value, each with where it is; `objects`: also in attributes of objects."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if is_a(value, torch.Tensor) or _is_numpy(value):
        yield path, value
        return
    items = _items(value)
    if items is None and objects and not is_a(value, *_NO_OBJECTS):
        items = [(f".{name}", item) for name, item in dict_of(value).items()]
    for key, item in items or ():
        yield from _tensors_in(item, path + key, seen, objects=objects)


def _has_equality(value: Any) -> bool:
    """Whether another object may be equal to it."""
    own: Any = type(value).__eq__
    return own is not object.__eq__ or isinstance(value, _SINGLE)


def _is_numpy(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and is_a(value, numpy.ndarray, numpy.generic)


def _same_class(ours: type, theirs: type) -> bool:
    """A class that is made in each call is another one each time."""
    return ours is theirs or (
        (ours.__module__, ours.__qualname__) == (theirs.__module__, theirs.__qualname__)
        and "<locals>" in ours.__qualname__
    )


def _first_difference(ours: Sequence[str], theirs: Sequence[str]) -> str:
    """Where two lists of names part."""
    missing = "nothing"
    for number, (own, other) in enumerate(itertools.zip_longest(ours, theirs, fillvalue=missing), 1):
        if own != other:
            return f"number {number} is {own}, with eager {other}"
    return "none differs"


def _strides(tensor: torch.Tensor) -> list[int]:
    """The strides that matter to where an element is."""
    if not tensor.numel():
        return []
    return [stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]


def _name(value: Any) -> str:
    return type(value).__qualname__


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
