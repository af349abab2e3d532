"""The configuration table: every key, its type and its meaning, and the reading of it.

The structures below are the reference. Their docstrings document the keys (which are written with
hyphens where the fields have underscores), their types validate them, and their errors name them.
schema.json and docs/configuration.md are made from both: `python -m hatch_precompile.generate_docs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from hatch_precompile.config.devices import check_devices
from hatch_precompile.config.options import check_options
from hatch_precompile.config.reading import (
    check_distinct,
    check_keys,
    describe,
    expected,
    quote_key,
    read_struct,
    read_value,
)
from hatch_precompile.errors import ConfigError

__all__ = ["HATCH_KEYS", "RESERVED", "Config", "Dimension", "Entrypoint", "Matrix", "load"]

RESERVED = frozenset({"manifest.json", "cells.json"})
"""Names that no entrypoint may have: its folder in the bundle is called like it, and a bundle has files of
these names."""

_IDENTIFIER = r"[^\W\d]\w*"
_DOTTED = rf"{_IDENTIFIER}(?:\.{_IDENTIFIER})*"

# A description is what an error says was expected.
Package = Annotated[
    str, Meta(pattern=rf"\A{_DOTTED}\Z", description='the name of an import package, such as "textmodel"')
]
Reference = Annotated[
    str, Meta(pattern=rf"\A{_DOTTED}:{_DOTTED}\Z", description='a reference like "package.module:name"')
]
SamplesSource = Annotated[
    str,
    Meta(
        pattern=rf"\A(?:recorded:.+|{_DOTTED}:{_DOTTED})\Z",
        description='a reference like "package.module:name", or "recorded:FILE"',
    ),
]
Name = Annotated[
    str,
    Meta(
        pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]*\Z",
        description="a name of letters, digits, dots, hyphens and underscores",
    ),
]
Variants = Annotated[
    tuple[Annotated[str, Meta(min_length=1, description="the name of a variant")], ...],
    Meta(min_length=1, description='an array of one or more variant names, such as ["native"]'),
]
Pythons = Annotated[
    tuple[
        Annotated[
            str,
            Meta(
                pattern=r"\A3\.(?:1[1-9]|[2-9][0-9])\Z",
                description='a minor version of Python, 3.11 or later, such as "3.12"',
            ),
        ],
        ...,
    ],
    Meta(min_length=1, description='an array of one or more versions of Python, such as ["3.11", "3.12"]'),
]
Torches = Annotated[
    tuple[
        Annotated[
            str,
            Meta(
                pattern=r"\A[1-9][0-9]*(?:\.(?:0|[1-9][0-9]*)){2}(?:(?:a|b|rc|\.dev)[0-9]+)?\Z",
                description='a whole version of torch without a local part, such as "2.13.0"',
            ),
        ],
        ...,
    ],
    Meta(min_length=1, description='an array of one or more versions of torch, such as ["2.13.0", "2.14.1"]'),
]
Cudas = Annotated[
    tuple[
        Annotated[
            str,
            Meta(
                pattern=r"\Acu[1-9][0-9]{2}\Z",
                description='a build of torch for a CUDA, as PyTorch\'s index calls it, such as "cu130"',
            ),
        ],
        ...,
    ],
    Meta(
        min_length=1,
        description='an array of one or more builds of torch for a CUDA, such as ["cu126", "cu130"]',
    ),
]
ProjectFile = Annotated[
    str,
    Meta(
        pattern=r"\A[^/{\n][^\n]*\.json\Z",
        description='the name of a JSON file in the project, such as "tuned-kernels.json"',
    ),
]
Jobs = Annotated[int, Meta(ge=0, description="a whole number, 0 or more")]
Seconds = Annotated[float, Meta(gt=0, description="a number of seconds, more than 0")]
Size = Annotated[int, Meta(ge=0, description="a whole number, 0 or more")]
Mode = Literal["no_grad", "inference", "train"]
Devices = Annotated[
    tuple[Literal["cpu", "cuda"], ...],
    Meta(min_length=1, description='an array of one or both of "cpu" and "cuda"'),
]
ArgumentNames = tuple[
    Annotated[
        str, Meta(pattern=rf"\A{_IDENTIFIER}\Z", description='the name of an argument, such as "scale"')
    ],
    ...,
]
DimensionName = Annotated[str, Meta(pattern=rf"\A{_IDENTIFIER}\Z", description='a name, such as "batch"')]


class Dimension(Struct, frozen=True, forbid_unknown_fields=True):
    """One dynamic dimension of an argument, as `torch.export.Dim` has it."""

    name: DimensionName
    """What the dimension is called. Dimensions of one entrypoint that share a name have one range."""

    min: Size | None = None
    """The smallest size served. Left out: 2, or what the model allows."""

    max: Size | None = None
    """The largest size served. Left out: what the model allows."""


DynamicShapes = dict[str, dict[int, Dimension]]


class Entrypoint(Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """A callable that is compiled into the wheel."""

    target: Reference
    """What is compiled: an `nn.Module` class, `package.module:Class.method`, or `package.module:function`."""

    name: Name = ""
    """What the entrypoint is called. Left out: the target's part after the colon, in lower case, with hyphens
    for dots."""

    instance: Reference | None = None
    """For classes and methods: a callable that returns the object. Left out: the class."""

    samples: SamplesSource | None = None
    """A callable that returns an iterable of [samples](authors.md#samples), or `"recorded:FILE"`, a
    [record](users.md#a-record-of-calls) in the project. Either this or `workload`."""

    workload: Reference | None = None
    """A callable that [uses the target](authors.md#workloads). Either this or `samples`."""

    mode: Mode | tuple[Mode, ...] = "no_grad"
    """The [mode](authors.md#modes-and-activation) of samples and of served calls, or several. `"train"`
    stands alone."""

    devices: Devices = ("cpu",)
    """Where calls are served: on the CPU, on NVIDIA's [GPUs](cuda.md), or on both. Samples are made on the
    CPU, and moved."""

    dynamic_shapes: DynamicShapes = {}
    """Which [sizes](authors.md#dynamic-sizes) may differ from the samples': per argument, per dimension, its
    name or `{ name, min, max }`."""

    dynamic_numbers: ArgumentNames = ()
    """Arguments that are numbers, int or float, and may differ from the samples'. They, and what is computed
    of them, have to fit into 64 bits and the tensor's type."""

    weights: Literal["read", "fixed"] = "read"
    """Whether [weights](authors.md#weights) may change between calls. `"fixed"`: they do not."""

    float32_matmul_precision: Literal["highest", "high", "medium"] = "highest"
    """How float32 layers multiply, as in `torch.set_float32_matmul_precision`. `"medium"`:
    [in bfloat16](authors.md#precision). `"high"` is as `"highest"` on a CPU."""

    activate: Literal["call", "compile"] = "call"
    """Which calls use the compiled code. `"call"`: all. `"compile"`: those under `torch.compile`."""

    on_miss: Literal["eager", "compile", "error"] = "eager"
    """With `activate = "call"`, what a miss does: run eagerly, be compiled, or raise `PrecompileError`."""

    on_skip: Literal["fail", "eager"] = "fail"
    """A function that torch.compile gives up on, as with a graph break in a loop, stops the build, or runs as
    Python while what it calls is compiled."""

    fullgraph: bool = False
    """As in `torch.compile(fullgraph=True)`: a sample is one graph, `.item()` and `nonzero()` included; a
    graph break stops the build."""

    options: dict[str, Any] = {}
    """Settings for inductor, as in `torch.compile(options=...)`, but not those that a wheel rests on, such as
    `cpp_wrapper` or `freezing`."""

    @property
    def modes(self) -> tuple[Mode, ...]:
        """Those of `mode`, which may be one."""
        return (self.mode,) if isinstance(self.mode, str) else tuple(self.mode)


class Matrix(Struct, frozen=True, forbid_unknown_fields=True):
    """The cells of one wheel for several versions: every Python with every torch, and every CUDA."""

    python: Pythons
    """The minor versions of Python."""

    torch: Torches
    """The versions of torch. `build-system.requires` has to allow all of them."""

    cuda: Cudas = ()
    """With variants for [GPUs](cuda.md): for which CUDAs the torches are built. They are installed from
    `download.pytorch.org/whl`."""


class Config(Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """What hatch-precompile compiles into a wheel, and how."""

    package: Package
    """The import package that carries the compiled code. Left out: the wheel's only one."""

    variants: Variants = ("native",)
    """The [processors](authors.md#variants), and with `cuda` in front the [GPUs](cuda.md), compiled for."""

    matrix: Matrix | None = None
    """What `hatch-precompile build --matrix` makes one wheel for."""

    require_torch: Literal["exact", "none"] = "exact"
    """`"exact"` adds `torch==<version built with>` to the wheel's requirements, `"none"` does not."""

    verify: Annotated[bool | Literal["run"], Meta(description='true or false, or "run"')] = True
    """Whether the build [verifies](building.md#verification) the finished bundle. `"run"` also runs
    what is for [GPUs](cuda.md), and stops where there is none."""

    on_error: Literal["fail", "warn"] = "fail"
    """What happens if an entrypoint cannot be captured or verified. `"warn"` leaves it out, with a line that
    starts with `WARNING:`, unless none would be left."""

    jobs: Jobs = 0
    """How many entrypoints are captured, and then verified, at the same time. 0: one for each core."""

    timeout: Seconds = 600.0
    """Seconds after which a capture or a verification that prints no line is stopped."""

    memory_limit: Jobs = 0
    """Megabytes for all captures and verifications with their compilers. If they have more, the one with most
    is ended, and its entrypoint fails. 0: four fifths of what the machine, or the build's control group, has
    free at the start."""

    tuned_kernels: ProjectFile | None = None
    """For [GPUs](cuda.md): a file of the project that [`hatch-precompile tune`](cuda.md#tuning) wrote, with
    the fastest configurations of kernels."""

    report: bool = False
    """Write a [page about the build](building.md#what-a-build-does) beside the wheel,
    `<name of the wheel's file>.report.html`. Needs `hatch-precompile[report]`."""

    entrypoints: tuple[Entrypoint, ...]
    """What is compiled, one table each. At least one."""


# Keys Hatch reads from every hook's table. They are its own to document and to validate.
HATCH_KEYS = frozenset(
    {"dependencies", "enable-by-default", "path", "require-runtime-dependencies", "require-runtime-features"}
)


def load(
    table: Mapping[str, object],
    *,
    default_package: str | None,
    prefix: str = "tool.hatch.build.hooks.precompile",
) -> Config:
    """Read the hook's table.

    `default_package` is the wheel's only import package, None if it has none or several. `prefix` is
    where the author wrote the table. Raises ConfigError, whose text starts with the full key.
    """
    own = {key: value for key, value in table.items() if key not in HATCH_KEYS}
    if "package" not in own:
        if default_package is None:
            raise ConfigError(
                f"{prefix}.package: expected the name of the import package that carries the bundle; "
                "it can be left out only if the wheel holds exactly one"
            )
        own["package"] = default_package
    check_keys(own, Config, prefix)
    entrypoints = _entrypoints(own.pop("entrypoints"), f"{prefix}.entrypoints")
    matrix = _matrix(own["matrix"], f"{prefix}.matrix") if "matrix" in own else None
    config = read_struct(Config, own, prefix, entrypoints=entrypoints, matrix=matrix)
    check_distinct((f"{prefix}.variants[{i}]", variant) for i, variant in enumerate(config.variants))
    check_devices(config, prefix)
    return config


def _matrix(value: object, path: str) -> Matrix:
    if not isinstance(value, dict):
        raise expected(path, 'a table such as { python = ["3.12"], torch = ["2.13.0"] }', value)
    check_keys(value, Matrix, path)
    matrix = read_struct(Matrix, value, path)
    check_distinct((f"{path}.python[{i}]", version) for i, version in enumerate(matrix.python))
    check_distinct((f"{path}.torch[{i}]", version) for i, version in enumerate(matrix.torch))
    check_distinct((f"{path}.cuda[{i}]", version) for i, version in enumerate(matrix.cuda))
    return matrix


def _entrypoints(value: object, path: str) -> tuple[Entrypoint, ...]:
    if isinstance(value, dict):
        raise ConfigError(f"{path}: expected an array of tables, got a table; write [[{path}]]")
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise expected(path, "an array of tables", value)
    if not value:
        raise ConfigError(f"{path}: expected at least one entrypoint, got none")
    entrypoints = [_entrypoint(item, f"{path}[{index}]") for index, item in enumerate(value)]
    check_distinct((f"{path}[{i}].name", item.name) for i, item in enumerate(entrypoints) if item.name)
    for index, item in enumerate(entrypoints):
        if not item.name and item in entrypoints[:index]:
            earlier = entrypoints.index(item)
            raise ConfigError(
                f"{path}[{index}]: expected another entrypoint than {path}[{earlier}], got the same"
            )
        if item.name in RESERVED:
            raise ConfigError(
                f'{path}[{index}].name: "{item.name}" is a file of the bundle; choose another name'
            )
    return tuple(_named(entrypoints))


def _entrypoint(table: dict[str, object], path: str) -> Entrypoint:
    check_keys(table, Entrypoint, path)
    _check_source_of_samples(table, path)
    if "name" in table and not table["name"]:
        raise expected(f"{path}.name", describe(Name), table["name"])
    shapes = _dynamic_shapes(table.get("dynamic-shapes", {}), f"{path}.dynamic-shapes")
    mode = _mode(table.get("mode", "no_grad"), f"{path}.mode")
    entrypoint = read_struct(Entrypoint, table, path, dynamic_shapes=shapes, mode=mode)
    if entrypoint.fullgraph and entrypoint.on_skip == "eager":
        raise ConfigError(f'{path}.on-skip: expected "fail" beside fullgraph = true, got "eager"')
    check_distinct((f"{path}.devices[{i}]", device) for i, device in enumerate(entrypoint.devices))
    check_options(entrypoint.options, f"{path}.options")
    file = (entrypoint.samples or "").removeprefix("recorded:")
    if file != entrypoint.samples and (PurePath(file).is_absolute() or file.startswith("{")):
        raise expected(f"{path}.samples", "a file of the project, relative to its folder", file)
    return entrypoint


def _check_source_of_samples(table: dict[str, object], path: str) -> None:
    reference = 'a reference like "package.module:name"'
    if "samples" not in table and "workload" not in table:
        raise ConfigError(f"{path}.samples: expected {reference}, here or as workload, but both are missing")
    if "samples" in table and "workload" in table:
        raise ConfigError(f"{path}.workload: expected either samples or workload, got both")
    if "instance" in table and "workload" in table:
        raise ConfigError(
            f"{path}.instance: expected no instance beside workload, which calls objects of its own"
        )


def _named(entrypoints: list[Entrypoint]) -> Iterator[Entrypoint]:
    """Give a name from its target to each that has none; a number tells those apart that would share one."""
    taken = {entrypoint.name for entrypoint in entrypoints}
    for entrypoint in entrypoints:
        if entrypoint.name:
            yield entrypoint
            continue
        qualname = entrypoint.target.partition(":")[2]
        base = re.sub(r"[^a-z0-9_-]", "-", qualname.lower()).lstrip("_-") or "entrypoint"
        name, number = base, 1
        while name in taken:
            number += 1
            name = f"{base}-{number}"
        taken.add(name)
        yield msgspec.structs.replace(entrypoint, name=name)


def _mode(value: object, path: str) -> Mode | tuple[Mode, ...]:
    if not isinstance(value, list):
        mode: Mode = read_value(value, Mode, path)
        return mode
    modes: tuple[Mode, ...] = tuple(
        read_value(item, Mode, f"{path}[{number}]") for number, item in enumerate(value)
    )
    check_distinct((f"{path}[{number}]", mode) for number, mode in enumerate(modes))
    if not modes or ("train" in modes and len(modes) > 1):
        raise expected(path, '"no_grad", "inference" or both, or "train" alone', value)
    return modes


def _dynamic_shapes(value: object, path: str) -> DynamicShapes:
    if not isinstance(value, dict):
        raise expected(path, "a table of argument names", value)
    shapes = {}
    for argument, dimensions in value.items():
        if not all(argument.split(".")):
            raise expected(
                path, 'an argument or a way into one, such as "cache.layers.*.keys", as key', argument
            )
        shapes[argument] = _dimensions(dimensions, f"{path}.{quote_key(argument)}")
    return _same_ranges(shapes, path)


def _dimensions(value: object, path: str) -> dict[int, Dimension]:
    if not isinstance(value, dict):
        raise expected(path, 'a table of dimensions, such as { 0 = "batch" }', value)
    dimensions = {}
    for key, dimension in value.items():
        if not re.fullmatch(r"0|[1-9]\d*", key, re.ASCII):
            what = (
                "the number of a dimension, 0 or more, as key (a way into an argument is one key, in quotes)"
            )
            raise expected(f"{path}.{quote_key(key)}", what, key)
        dimensions[int(key)] = _dimension(dimension, f"{path}.{key}")
    return dimensions


def _dimension(value: object, path: str) -> Dimension:
    if isinstance(value, str):
        return Dimension(read_value(value, DimensionName, path))
    if not isinstance(value, dict):
        raise expected(path, "the name of the dimension or { name, min, max }", value)
    check_keys(value, Dimension, path)
    dimension = read_struct(Dimension, value, path)
    if dimension.min is not None and dimension.max is not None and dimension.min > dimension.max:
        raise ConfigError(f"{path}: expected min <= max, got min = {dimension.min} and max = {dimension.max}")
    return dimension


def _same_ranges(shapes: DynamicShapes, path: str) -> DynamicShapes:
    """Give every dimension of one name the range that one of them states; two that differ are an error."""
    ranges: dict[str, tuple[Dimension, str]] = {}
    for argument, dimensions in shapes.items():
        for index, dimension in dimensions.items():
            if dimension.min is None and dimension.max is None:
                continue
            here = f"{path}.{quote_key(argument)}.{index}"
            first, there = ranges.setdefault(dimension.name, (dimension, here))
            if first != dimension:
                raise ConfigError(
                    f"{here}: expected the range that {there} gives to the dimension "
                    f'"{dimension.name}" ({_range(first)}), got {_range(dimension)}'
                )
    return {
        argument: {
            index: ranges[dimension.name][0] if dimension.name in ranges else dimension
            for index, dimension in dimensions.items()
        }
        for argument, dimensions in shapes.items()
    }


def _range(dimension: Dimension) -> str:
    low = "any" if dimension.min is None else dimension.min
    high = "any" if dimension.max is None else dimension.max
    return f"min {low}, max {high}"
