"""Whether a bundle fits this process, checked before anything of it is loaded."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

from hatch_precompile.bundle.format import FORMAT
from hatch_precompile.runtime import runtime, runtime_directory
from tests.support.hardware import HERE

errors, installation, manifests = map(runtime, ("errors", "installation", "loading.manifest"))
variants, x86_64 = map(runtime, ("loading.variants", "backends.x86_64"))
BACKEND = HERE.name
Unfit = errors.Unfit
status_of = runtime("explaining.overview").status_of
explain_call = runtime("explaining.explanation").explain_call


def manifest(**built_with: Any) -> dict[str, Any]:
    facts = {
        "torch": torch.__version__,
        "torch_git": torch.version.git_version,
        "python": "3.11",
        "magic": importlib.util.MAGIC_NUMBER.hex(),
    }
    return {"format": FORMAT, "built_with": facts | built_with, "variants": []}


def test_the_plugin_writes_the_format_the_runtime_reads() -> None:
    assert manifests.FORMAT == FORMAT


WHOLE: dict[str, Any] = {
    **{key: [] for key in ("variants", "entrypoints", "frames", "graphs", "resumes")},
    "built_with": dict.fromkeys(("magic", "python", "torch", "torch_git"), ""),
    "files": {},
    "format": FORMAT,
}


def test_a_fork_that_waited_in_vain_takes_no_lock_from_another_thread(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(installation, "FORK_WAITS", 0.01)
    monkeypatch.setattr(installation.os, "register_at_fork", lambda **hooks: None)
    (tmp_path / "manifest.json").write_text(json.dumps(WHOLE))
    one = installation.Installation(str(tmp_path), "package", "")

    def forks() -> None:
        one._hold()
        one._release()

    one._hold()
    other = threading.Thread(target=forks)
    other.start()
    other.join()
    one._release()
    free = threading.Thread(target=forks)
    free.start()
    free.join()
    assert one.lock.acquire(blocking=False)
    one.lock.release()
    with pytest.raises(RuntimeError):
        one.lock.release()


class TestManifest:
    def test_it_is_read(self, tmp_path: Path) -> None:
        (tmp_path / "manifest.json").write_text(json.dumps(WHOLE))
        assert manifests.read_manifest(str(tmp_path)) == WHOLE

    def test_one_without_a_part_says_which(self, tmp_path: Path) -> None:
        lacking = {key: value for key, value in WHOLE.items() if key not in ("graphs", "files")}
        (tmp_path / "manifest.json").write_text(json.dumps(lacking))
        with pytest.raises(Unfit, match="has no graphs, files; reinstall the package"):
            manifests.read_manifest(str(tmp_path))

    @pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 10])
    def test_one_that_cannot_be_read_is_named(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "manifest.json").write_bytes(content)
        with pytest.raises(Unfit, match=r"manifest\.json cannot be read .*; reinstall the package"):
            manifests.read_manifest(str(tmp_path))

    def test_a_missing_one_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(Unfit, match=r"manifest\.json cannot be read .*No such file"):
            manifests.read_manifest(str(tmp_path))

    @pytest.mark.parametrize(
        "content", ["[]", "3", "{}", '{"format": 0}', '{"format": "1"}', '{"format": 1}']
    )
    def test_another_format_is_not_read(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "manifest.json").write_text(content)
        with pytest.raises(Unfit, match=f"this runtime reads {FORMAT}"):
            manifests.read_manifest(str(tmp_path))


def test_entrypoints_of_one_target_have_the_same_counts(tmp_path: Path) -> None:
    """A call of the target does not say which of them is meant."""

    class Shared:
        record: ClassVar = {"qualname": "Net.forward"}
        entries: ClassVar = [SimpleNamespace(hits=3, ready=True, record={})]

    frame = {"module": "m", "qualname": "Net.forward", "heads": "h", "entries": [{}], "functions": []}
    entrypoint = {"target": "m:Net", "activate": "call", "on_miss": "eager", "home": ["m", []], "frames": [0]}
    given = {"frames": [frame], "entrypoints": [{"name": name, **entrypoint} for name in "ab"]}
    (tmp_path / "manifest.json").write_text(json.dumps({**WHOLE, **given}))
    made = installation.Installation(str(tmp_path), "package", "", None)
    made.variant, shared = "plain", Shared()
    made.entrypoints = {name: SimpleNamespace(frames=[shared], misses={shared: 2}) for name in "ab"}
    made.manifest["built_with"] |= {"python": "3.11", "torch": "2.13.0"}
    told = status_of(made)["entrypoints"]
    assert told["a"] == told["b"]
    assert (told["a"]["entries"], told["a"]["hits"], told["a"]["misses"]) == (1, 3, 2)


class TestLeftOut:
    """Entrypoints that failed at the build, with on-error = "warn"."""

    def test_they_are_told(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        left_out = [{"name": "decoder", "target": "textmodel.model:Decoder"}]
        (tmp_path / "manifest.json").write_text(json.dumps({**WHOLE, "left_out": left_out}))
        with caplog.at_level("INFO"):
            made = installation.Installation(str(tmp_path), "textmodel", "log")
            made.manifest["built_with"]["magic"] = importlib.util.MAGIC_NUMBER.hex()
            made._start()
        assert caplog.messages == ["decoder was left out when the wheel was built, because it failed there"]
        assert caplog.records[0].precompiled["event"] == "left out"  # type: ignore[attr-defined]
        told = status_of(made)["entrypoints"]["decoder"]
        assert (told["target"], told["active"], told["entries"]) == ("textmodel.model:Decoder", False, 0)
        assert told["left_out"] == ["it was left out when the wheel was built, because it failed there"]
        with pytest.raises(KeyError, match="'decoder' was left out when the wheel was built"):
            explain_call(made, "decoder", (), {})

    @pytest.mark.parametrize("damaged", [3, [3], [{"name": "decoder"}]])
    def test_a_record_that_is_none_is_damage(self, tmp_path: Path, damaged: Any) -> None:
        (tmp_path / "manifest.json").write_text(json.dumps({**WHOLE, "left_out": damaged}))
        with pytest.raises(Unfit, match="is damaged; reinstall the package"):
            manifests.read_manifest(str(tmp_path))


class TestVariantThatIsAskedFor:
    """As the verification of a wheel with several asks for each."""

    @pytest.fixture
    def directory(self, tmp_path: Path) -> Path:
        # The first, which any CPU runs, is what would be chosen: the other one needs what none has.
        variants = [
            {"name": "plain", "backend": BACKEND, "requires": []},
            {"name": "wide", "backend": BACKEND, "requires": ["no such thing"]},
        ]
        (tmp_path / "manifest.json").write_text(json.dumps({**WHOLE, "variants": variants}))
        return tmp_path

    @pytest.mark.parametrize(("asked", "used"), [(None, "plain"), ("plain", "plain"), ("wide", "wide")])
    @pytest.mark.parametrize("mode", ["", "strict"])
    def test_it_is_used(
        self, directory: Path, asked: str | None, used: str, mode: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(installation, "check_torch", lambda manifest: None)
        made = installation.Installation(str(directory), "package", mode, asked)
        made._prepare()
        assert made.bundle.variant == used
        assert status_of(made)["variant"] == used

    def test_one_that_is_not_there_is_named(self, directory: Path) -> None:
        with pytest.raises(Unfit, match="it has no variant narrow; those it has are plain, wide"):
            installation.Installation(str(directory), "package", "", "narrow")


class TestPython:
    def test_this_one_fits(self) -> None:
        manifests.check_python(manifest(python="written by another patch version"))

    def test_another_magic_number_does_not(self) -> None:
        with pytest.raises(Unfit, match=r"built for Python 3\.10 .*; install a wheel built for this Python"):
            manifests.check_python(manifest(python="3.10", magic="6f0d0d0a"))

    @pytest.mark.parametrize("flags", ["t", "td"])
    def test_one_without_the_gil_does_not(self, flags: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its bytecode has the same number, and its objects another layout."""
        monkeypatch.setattr(sys, "abiflags", flags)
        with pytest.raises(Unfit, match=r"this Python is a free-threaded build, .*; use the Python that has"):
            manifests.check_python(manifest())


class TestTorch:
    def test_this_one_fits(self) -> None:
        manifests.check_torch(manifest())

    def test_the_local_part_of_the_version_does_not_count(self) -> None:
        manifests.check_torch(manifest(torch=torch.__version__.split("+")[0] + "+elsewhere"))

    def test_another_version_does_not(self) -> None:
        with pytest.raises(
            Unfit, match=r"built with torch 2\.0\.1\+cpu, .*; install torch==2\.0\.1 or a wheel"
        ):
            manifests.check_torch(manifest(torch="2.0.1+cpu"))

    def test_another_build_of_the_same_version_does_not(self) -> None:
        with pytest.raises(Unfit, match="another build of torch"):
            manifests.check_torch(manifest(torch_git="0" * 40))


class TestVariant:
    @pytest.fixture(autouse=True)
    def cpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        capabilities = {"architecture": "x86_64", "avx2": True, "fma3": True, "avx512_f": False, "cores": 8}
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)

    @staticmethod
    def choose(**given: list[str]) -> str:
        found = [{"name": name, "backend": "x86_64", "requires": each} for name, each in given.items()]
        name: str = variants.choose_variant({"variants": found}, {"x86_64": x86_64})
        return name

    def test_the_most_demanding_that_fits_is_chosen(self) -> None:
        assert self.choose(small=[], large=["avx2", "fma3"], middle=["avx2"], other=["avx512_f"]) == "large"

    def test_a_flag_that_is_there_but_false_is_lacking(self) -> None:
        with pytest.raises(Unfit, match="this CPU cannot run it: wide needs avx512_f; install a wheel"):
            self.choose(wide=["avx2", "avx512_f"])

    def test_every_variant_says_what_it_lacks(self) -> None:
        with pytest.raises(Unfit, match="a needs amx; b needs avx512_f, sve"):
            self.choose(a=["amx"], b=["sve", "avx512_f"])


class TestVariantsByCapability:
    """Three variants on a CPU that has everything, as torch's own capability and the CPU's flags allow."""

    LEVELS: ClassVar = {
        "x86-64-v2": ["sse4_2"],
        "x86-64-v3": ["sse4_2", "avx2", "fma3"],
        "x86-64-v4": ["sse4_2", "avx2", "fma3", "avx512_f"],
    }

    @pytest.mark.parametrize(
        ("capability", "masked", "chosen"),
        [
            ("AVX512", [], "x86-64-v4"),
            ("AVX2", [], "x86-64-v3"),
            ("DEFAULT", [], "x86-64-v2"),
            ("AVX512", ["avx512_f"], "x86-64-v3"),
            ("AVX512", ["avx2"], "x86-64-v2"),
            ("AVX512", ["sse4_2"], None),
        ],
    )
    def test_each_is_chosen_where_it_should_be(
        self, monkeypatch: pytest.MonkeyPatch, capability: str, masked: list[str], chosen: str | None
    ) -> None:
        flags = dict.fromkeys(self.LEVELS["x86-64-v4"], True) | dict.fromkeys(masked, False)
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {**flags, "architecture": "x86_64"})
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
        levels = [
            {"name": name, "backend": "x86_64", "requires": flags} for name, flags in self.LEVELS.items()
        ]
        given = {"variants": levels}, {"x86_64": x86_64}
        if chosen is None:
            with pytest.raises(Unfit, match="x86-64-v2 needs sse4_2; x86-64-v3 needs sse4_2"):
                variants.choose_variant(*given)
        else:
            assert variants.choose_variant(*given) == chosen


class TestParts:
    @pytest.mark.parametrize("missing", [True, False])
    @pytest.mark.parametrize(
        "file",
        [
            *("backends/__init__.py", "backends/x86_64/__init__.py", "calling/__init__.py"),
            *("loading/__init__.py", "torch_internals/__init__.py", "values/__init__.py"),
        ],
    )
    def test_a_file_of_a_folder_that_is_cut_or_missing_is_told(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, missing: bool
    ) -> None:
        """Where it is missing, Python takes the folder for a package all the same."""
        package = tmp_path.name  # of this test alone
        shutil.copytree(runtime_directory(), tmp_path / package)
        damaged = tmp_path / package / file
        text = damaged.read_text().replace("WHOLE = True", "")
        damaged.unlink() if missing else damaged.write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
        for name in ("backends", "backends.x86_64", "calling", "loading", "torch_internals", "values"):
            importlib.import_module(f"{package}.{name}")
        errors = importlib.import_module(f"{package}.errors")
        with pytest.raises(errors.Unfit, match=f"{damaged.parent if missing else damaged} is damaged"):
            errors.check_parts()

    def test_what_is_whole_is_not(self) -> None:
        errors.check_parts()


class TestGivingUp:
    def test_is_one_warning_that_names_the_package(self) -> None:
        with pytest.warns(errors.PrecompileWarning, match=r"^model: compiled code is not used: why$"):
            errors.give_up("model", Unfit("why"), "")

    def test_an_unforeseen_error_is_named_by_its_type(self) -> None:
        with pytest.warns(errors.PrecompileWarning, match="KeyError: 'frames'"):
            errors.give_up("model", KeyError("frames"), "")

    def test_strict_raises(self) -> None:
        with pytest.raises(errors.PrecompileError, match=r"^model: compiled code is not used: why$"):
            errors.give_up("model", Unfit("why"), "strict")

    def test_it_never_raises_otherwise(self, capsys: pytest.CaptureFixture[str]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            errors.give_up("model", Unfit("why"), "")
        assert capsys.readouterr().err == "model: compiled code is not used: why\n"
