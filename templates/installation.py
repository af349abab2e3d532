"""Puts a bundle's entries into this process, as far as they fit it, and takes them out again."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import threading
import warnings
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .activation import Entrypoint, Frame
    from .entries import Bundle

__all__ = [
    "FORMAT",
    "Installation",
    "PrecompileError",
    "PrecompileWarning",
    "Unfit",
    "executed",
    "give_up",
    "is_imported",
    "warn",
]

FORMAT = 2

# Seconds a fork waits for what another thread is loading.
FORK_WAITS = 30.0

# Modules whose code has run while the import system still calls them unfinished.
executed: set[str] = set()
_KEYS = ("built_with", "variants", "entrypoints", "frames", "graphs", "resumes", "files")

# Instructions that torch leaves alone at a capability of its own.
_BEYOND = {
    "DEFAULT": ("avx2", "fma", "avx512", "avx10", "amx"),
    "AVX2": ("avx512", "avx10", "amx"),
}


class PrecompileWarning(UserWarning):
    """Compiled code of a wheel is not used; the model runs as if it had none."""


class PrecompileError(RuntimeError):
    """The same, and every miss, under HATCH_PRECOMPILE=strict or on-miss = "error"."""


class Unfit(Exception):
    """The bundle as a whole does not fit this process. Its text says why and what to do."""


def give_up(package: str, error: BaseException, mode: str) -> None:
    """One warning that says which wheel, why, and what to do; an error under `strict`."""
    reason = str(error) if isinstance(error, Unfit) else f"{type(error).__name__}: {error}"
    warn(package, f"compiled code is not used: {reason}", mode)


def warn(package: str, text: str, mode: str) -> None:
    """Warn once; never raise, even where warnings are errors, unless the mode is `strict`."""
    message = f"{package}: {text}"
    if mode == "strict":
        raise PrecompileError(message)
    try:
        warnings.warn(message, PrecompileWarning, stacklevel=2)
    except Exception:  # -W error: an import must not fail for it
        sys.stderr.write(f"{message}\n")


class Installation:
    """One bundle in one process."""

    def __init__(self, directory: str, package: str, mode: str, variant: str | None = None) -> None:
        self.directory = directory
        self.package = package
        self.mode = mode
        self.lock = threading.RLock()
        self.reason = ""
        self.entrypoints: dict[str, Entrypoint] = {}
        self.frames: list[Frame] = []
        self.left_out: dict[str, list[str]] = {}
        self.variant = variant
        self._bundle: Bundle | None = None
        self.uninstalled = False
        self._stop_waiting: list[Callable[[], None]] = []
        self.log: Any = None
        self.manifest = _read_manifest(directory)
        names = [each["name"] for each in self.manifest["variants"]]
        if variant is not None and variant not in names:
            raise Unfit(f"it has no variant {variant}; those it has are {', '.join(names)}")
        # What is being loaded by another thread would stay half loaded in the child, and the lock held.
        os.register_at_fork(before=self._hold, after_in_parent=self._release, after_in_child=self._renew)

    def _hold(self) -> None:
        # Loading takes milliseconds, or seconds where torch's wrappers for autograd come in. Longer is a
        # thread that waits for this one, which must not wait in its turn.
        self._held = self.lock.acquire(timeout=FORK_WAITS)

    def _release(self) -> None:
        if self._held:
            self.lock.release()

    def _renew(self) -> None:
        self.lock = threading.RLock()

    # -- installing ------------------------------------------------------------------------------

    def start(self) -> None:
        """Install what can be installed now, and the rest when its modules come in."""
        _check_python(self.manifest)
        if self.mode == "log":
            from .reporting import Log

            self.log = Log(self.package, own=True)
        self.waiting = list(self.manifest["entrypoints"])
        missing = {
            module for record in self.waiting for module in _needs(record) if not self.is_usable(module)
        }
        if missing:
            self.when_imported(missing, self.proceed)
        self.proceed()

    def when_imported(self, modules: set[str], action: Callable[[], None]) -> None:
        """Call `action` after each import of one of the modules, until all of them have been imported."""
        from .watching import when_imported

        self._stop_waiting.append(when_imported(modules, action))

    def proceed(self) -> None:
        """Activate every waiting entrypoint whose target and torch have been imported."""
        if self.uninstalled or not self._ready():
            return
        try:
            # Not under the lock: an import waits for other threads' imports, which may wait for the lock.
            importlib.import_module(".activation", __package__)
            with self.lock:
                ready = self._ready()
                self.waiting = [record for record in self.waiting if record not in ready]
                if ready and not self.frames:
                    self._prepare()
                for record in ready:
                    self._activate(record)
        except PrecompileError:  # strict
            raise
        except Exception as error:
            self.waiting = []
            self.reason = str(error)
            give_up(self.package, error, self.mode)

    def _ready(self) -> list[Any]:
        return [record for record in self.waiting if all(map(self.is_usable, _needs(record)))]

    def is_usable(self, module: str) -> bool:
        """Whether a module's code has run: the package's own has, but for the line that called us."""
        return is_imported(module) or (module == self.package and module in sys.modules)

    def _prepare(self) -> None:
        """Checks and setup that need torch: its version, the frames.

        Not yet whether this CPU fits: nothing of the bundle is used before a call, and asking the CPU costs
        an import a good part of all that the rest does.
        """
        from .activation import Frame

        _check_torch(self.manifest)
        # It is being watched: say at once what would be said at the first call.
        if self.mode and self.variant is None:
            self.variant = _choose_variant(self.manifest)
        self.frames = [Frame(self, record, number) for number, record in enumerate(self.manifest["frames"])]

    @property
    def bundle(self) -> Bundle:
        """The files of the bundle, as the chosen variant has them. Raises Unfit if none fits this CPU."""
        if self._bundle is None:
            from .entries import Bundle

            if self.variant is None:
                self.variant = _choose_variant(self.manifest)
            self._bundle = Bundle(
                self.directory, self.package, self.manifest, self.variant, lambda: self.lock
            )
        return self._bundle

    def _activate(self, record: dict[str, Any]) -> None:
        from .activation import Entrypoint

        name = record["name"]
        try:
            entrypoint = Entrypoint(self, record)
            entrypoint.activate()
        except Exception as error:
            self.left_out.setdefault(name, []).append(str(error))
            text = f"entrypoint {name} is not used: {error}; "
            warn(self.package, text + getattr(error, "advice", "rebuild the wheel"), self.mode)
            return
        self.entrypoints[name] = entrypoint
        if self.log is not None:
            entries = sum(len(frame.record["entries"]) for frame in entrypoint.frames)
            self.log.installed(name, entries, self.variant)

    # -- while running ---------------------------------------------------------------------------

    def leave_out(self, frame: Frame, record: dict[str, Any], error: BaseException) -> None:
        """An entry does not fit this process: say so once per frame, and go on without it.

        Under `strict` it is the miss that follows which raises: a guard being asked cannot.
        """
        names = [owner.name for owner in frame.owners]
        for name in names:
            self.left_out.setdefault(name, []).append(str(error))
        if isinstance(error, Unfit):  # of the bundle as a whole: said once
            told, self.reason = bool(self.reason), str(error)
            if not told and self.mode != "strict":
                give_up(self.package, error, self.mode)
            return
        if self.mode != "strict" and len(self.left_out.get(names[0] if names else "", ())) <= 1:
            text = f"compiled code for {frame.record['qualname']} is not used: {error}; "
            text += getattr(error, "advice", "rebuild the wheel")
            warn(self.package, text, self.mode)

    def resume_function(self, number: int) -> Any:
        """The function a graph break continues in, with its own entries installed.

        One with free variables is a factory for it that takes the closure, as dynamo's bytecode has it.
        """
        module = sys.modules[self.manifest["resumes"][number]["module"]]
        frame = next((frame for frame in self.frames if frame.record.get("resume") == number), None)
        code = self.bundle.resume_code(number)
        if frame is not None:
            frame.served = True
            code = frame.resumed(code, module.__dict__)
        if code.co_freevars:
            return lambda closure: FunctionType(code, module.__dict__, code.co_name, None, closure)
        return FunctionType(code, module.__dict__, code.co_name)

    # -- reporting and taking out ----------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        entrypoints = {}
        for record in self.manifest["entrypoints"]:
            name = record["name"]
            active = self.entrypoints.get(name)
            frames = active.frames if active is not None else []
            entrypoints[name] = {
                "target": record["target"],
                "active": active is not None,
                "entries": sum(
                    len(self.manifest["frames"][number]["entries"]) for number in record["frames"]
                ),
                "loaded": sum(entry.ready for frame in frames for entry in frame.entries),
                "hits": sum(entry.hits for frame in frames[:1] for entry in frame.entries),
                "misses": sum(frame.misses for frame in frames[:1]),
                "by_entry": [
                    {"function": frame.record["qualname"], "loaded": entry.ready, "hits": entry.hits}
                    for frame in frames
                    for entry in frame.entries
                ],
                "left_out": list(self.left_out.get(name, ())),
                "skipped": [skipped["function"] for skipped in record.get("skipped", ())],
            }
        reason = self.reason
        if self.entrypoints and self.variant is None and not reason:
            try:
                self.variant = _choose_variant(self.manifest)
            except Unfit as error:
                reason = str(error)
        return {
            "installed": bool(self.entrypoints) and not self.uninstalled and not reason,
            "reason": reason,
            "variant": self.variant,
            "entrypoints": entrypoints,
        }

    def uninstall(self) -> None:
        """Deactivate entrypoints and make every guard refuse.

        Entries are not freed: another thread may be looking them up, and other wheels' entries may
        sit on the same code.
        """
        with self.lock:
            self.uninstalled = True
            self.waiting = []
            for stop in self._stop_waiting:
                stop()
            # The last first: two entrypoints may have wrapped one class.
            for entrypoint in reversed(self.entrypoints.values()):
                entrypoint.deactivate()
            for frame in self.frames:
                frame.retire()


def is_imported(name: str) -> bool:
    """Whether a module's code has run to its end (it is in sys.modules from its start)."""
    module = sys.modules.get(name)
    if module is None:
        return False
    return name in executed or not getattr(getattr(module, "__spec__", None), "_initializing", False)


def _needs(record: dict[str, Any]) -> tuple[str, str]:
    return "torch", record["home"][0]


def _read_manifest(directory: str) -> dict[str, Any]:
    path = os.path.join(directory, "manifest.json")
    try:
        with open(path, encoding="utf-8") as file:
            manifest = json.load(file)
    except (OSError, ValueError) as error:
        raise Unfit(f"{path} cannot be read ({error}); reinstall the package") from None
    found = manifest.get("format") if isinstance(manifest, dict) else None
    lacking = [key for key in _KEYS if found == FORMAT and key not in manifest]
    if lacking:
        raise Unfit(f"{path} has no {', '.join(lacking)}; reinstall the package")
    if found != FORMAT:
        raise Unfit(f"its bundle has format {found!r}, this runtime reads {FORMAT}; reinstall the package")
    if not _is_whole(manifest):
        raise Unfit(f"{path} is damaged; reinstall the package")
    return manifest


def _is_whole(manifest: dict[str, Any]) -> bool:
    """Whether all that is read at import, or by `status()`, has the type it must have."""
    entrypoints, frames, variants = (manifest[key] for key in ("entrypoints", "frames", "variants"))
    return (
        all(
            isinstance(manifest[key], list)
            for key in ("entrypoints", "frames", "variants", "graphs", "resumes")
        )
        and isinstance(manifest["files"], dict)
        and _has_strings(manifest["built_with"], "magic", "python", "torch", "torch_git")
        and all(
            _has_strings(each, "name")
            and isinstance(each.get("requires"), list)
            and _all_are(str, each["requires"])
            for each in variants
        )
        and all(
            _has_strings(each, "module", "qualname", "heads")
            and isinstance(each.get("entries"), list)
            and isinstance(each.get("functions"), list)
            for each in frames
        )
        and all(
            _has_strings(each, "name", "target", "activate", "on_miss")
            and _is_reference(each.get("home"))
            and isinstance(each.get("frames"), list)
            and _all_are(int, each["frames"])
            and all(0 <= number < len(frames) for number in each["frames"])
            and isinstance(each.get("skipped", []), list)
            and all(_has_strings(skipped, "function") for skipped in each.get("skipped", []))
            for each in entrypoints
        )
    )


def _has_strings(value: Any, *keys: str) -> bool:
    return isinstance(value, dict) and _all_are(str, [value.get(key) for key in keys])


def _is_reference(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[0], str)
        and isinstance(value[1], list)
    )


def _all_are(kind: type, values: list[Any]) -> bool:
    return all(type(value) is kind for value in values)


def _check_python(manifest: dict[str, Any]) -> None:
    built = manifest["built_with"]
    if built["magic"] != importlib.util.MAGIC_NUMBER.hex():
        here = f"{sys.version_info[0]}.{sys.version_info[1]}"
        raise Unfit(
            f"it was built for Python {built['python']} (bytecode magic number {built['magic']}), "
            f"this is {here}; install a wheel built for this Python"
        )


def _check_torch(manifest: dict[str, Any]) -> None:
    torch = sys.modules["torch"]
    built = manifest["built_with"]
    if torch.__version__.split("+")[0] != built["torch"].split("+")[0]:
        raise Unfit(
            f"it was built with torch {built['torch']}, this is {torch.__version__}; "
            f"install torch=={built['torch'].split('+')[0]} or a wheel built with this torch"
        )
    git = getattr(torch.version, "git_version", None)
    if git != built["torch_git"]:
        raise Unfit(
            f"it was built with another build of torch {built['torch']} (source {built['torch_git'][:10]}); "
            "rebuild the wheel with the torch that is installed here"
        )


def _choose_variant(manifest: dict[str, Any]) -> str:
    """The most demanding variant that every capability of this CPU allows.

    Torch's own ATEN_CPU_CAPABILITY, which keeps its kernels to narrower vectors, keeps ours as well.
    """
    import torch

    beyond = _BEYOND.get(torch.backends.cpu.get_cpu_capability(), ())
    here = {
        name
        for name, value in torch.cpu.get_capabilities().items()
        if value is True and not name.startswith(beyond)
    }
    fitting = [v for v in manifest["variants"] if set(v["requires"]) <= here]
    if not fitting:
        lacking = {v["name"]: sorted(set(v["requires"]) - here) for v in manifest["variants"]}
        words = "; ".join(f"{name} needs {', '.join(flags)}" for name, flags in lacking.items())
        raise Unfit(f"this CPU cannot run it: {words}; install a wheel with a variant for it")
    best: str = max(fitting, key=lambda v: len(v["requires"]))["name"]
    return best
