"""The verifying process: what it does with code that misbehaves, told in sentences.

The package stands for one that was built: its runtime says that every call is a hit, or not.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hatch_precompile.config import Entrypoint
from hatch_precompile.errors import VerifyError
from hatch_precompile.events import Event
from hatch_precompile.processes import parent
from hatch_precompile.verify.parent import SampleResult, run_samples
from tests.support.hardware import about_x86

# Its model lacks what the tests add to it.
MISBEHAVING = Path(__file__).parent / "verification" / "misbehaving"


class Package:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[Event] = []
        package = folder / "site" / "misbehaving"
        shutil.copytree(MISBEHAVING, package, ignore=shutil.ignore_patterns("__pycache__"))

    def results(self, model: str, timeout: float = 100) -> list[SampleResult]:
        text = (MISBEHAVING / "model.py").read_text()
        (self.folder / "site/misbehaving/model.py").write_text(f"{text}\n\n{model}")
        return run_samples(
            Entrypoint(target="misbehaving.model:target", samples="misbehaving.model:samples", name="it"),
            "misbehaving",
            paths=[self.folder / "site"],
            work=self.folder / "work",
            timeout=timeout,
            on_event=self.events.append,
        )

    def problems(self, model: str) -> list[str]:
        return [result.problem for result in self.results(model)]

    def error(self, model: str) -> str:
        with pytest.raises(VerifyError) as caught:
            self.results(model, timeout=60)
        assert "Traceback" not in str(caught.value)
        assert str(caught.value).startswith("entrypoint it: ")
        return str(caught.value).removeprefix("entrypoint it: ")

    def notes(self) -> list[str]:
        return [event.text for event in self.events if event.step == "note"]


@pytest.fixture
def package(tmp_path: Path) -> Package:
    return Package(tmp_path)


class TestEverySampleIsCalledThreeTimes:
    def test_each_a_hit(self, package: Package) -> None:
        first, second = package.results(
            "def body(x):\n    assert len(calls) <= 12\n    return [len(calls) % 6, x * len(calls) % 6]\n"
        )
        assert first == SampleResult(1, True, first.seconds, 0.0, "")
        assert second == SampleResult(2, True, second.seconds, 0.0, "")
        assert first.seconds is not None
        ends = [event for event in package.events if event.step == "sample-end"]
        assert [event.text for event in ends] == [
            f"sample {number}/2: hit, largest difference from eager 0.0e+00" for number in (1, 2)
        ]

    def test_one_that_is_served_the_first_time_alone_does_not_pass(self, package: Package) -> None:
        first, second = package.results(
            "def body(x):\n"
            "    if compiled() and len(calls) == 2:\n"
            "        raise PrecompileError('a cache was filled')\n"
            "    return x\n"
        )
        assert first.problem == (
            "sample 1/2 (called a second time) is not served by any entry: a cache was filled\n"
            "  It was served before, so the call changes what is called. Let `instance`, or the samples "
            "before this one, bring it to where it stays as it is."
        )
        assert (first.hit, second.hit, second.problem) == (False, True, "")

    def test_one_whose_third_answer_is_another_does_not_pass(self, package: Package) -> None:
        (first, second) = package.problems(
            "def body(x):\n    return x + (1 if compiled() and len(calls) == 3 else 0)\n"
        )
        assert first.startswith("sample 1/2 (called a third time): output differs from eager: Tensor-likes")
        assert second == ""

    def test_a_time_that_was_not_measured_is_none(self, package: Package) -> None:
        (first, _) = package.results(
            "def body(x):\n    if len(calls) == 1: raise ValueError('no')\n    return x\n"
        )
        assert first == SampleResult(1, False, None, None, "sample 1/2 from the bundle raised ValueError: no")


class TestWhatACallLeavesBehind:
    """See test_effects.py."""

    BODY = "state = []\ndef body(x):\n    if {}:\n        state.append(1)\n    return x\n"

    def test_what_eager_code_alone_does_stops_the_build(self, package: Package) -> None:
        assert package.problems(self.BODY.format("not compiled()"))[0] == (
            "sample 1/2 leaves misbehaving.model.state as builtins.list, eager code as a builtins.list with 1"
        )

    def test_what_both_do_is_right(self, package: Package) -> None:
        assert package.problems(self.BODY.format("True")) == ["", ""]


@about_x86("what the processor decides")
class TestAsOtherProcessorsWouldRunIt:
    """A model that imports the runtime's steps depends on the processor."""

    def test_a_fourth_call_of_each_sample(self, package: Package) -> None:
        results = package.results(
            "from misbehaving._precompiled.backends.x86_64 import steps\n"
            "def body(x):\n    assert len(calls) <= 16\n    return [len(calls) % 8, x]\n"
        )
        assert [result.problem for result in results] == ["", ""]

    def test_what_is_wrong_there_alone_does_not_pass(self, package: Package) -> None:
        first, second = package.problems(
            "from misbehaving._precompiled.backends.x86_64 import steps\n"
            "def body(x):\n    return x + (compiled() and len(x) == 2 and not steps.onednn_is_fast())\n"
        )
        said = "sample 1/2 (as other processors would run it): output differs from eager: Tensor-likes"
        assert first.startswith(said)
        assert second == ""

    def test_what_fails_there_is_no_change_of_what_is_called(self, package: Package) -> None:
        first, _ = package.problems(
            "from misbehaving._precompiled.backends.x86_64 import steps\n"
            "def body(x):\n    if not steps.onednn_is_fast(): raise ValueError('no')\n    return x\n"
        )
        assert first == "sample 1/2 (as other processors would run it) from the bundle raised ValueError: no"

    def test_weights_are_packed_anew_for_it_and_after_it(self, package: Package) -> None:
        results = package.problems(
            "from misbehaving._precompiled.backends.x86_64 import steps\n"
            "def body(x):\n"
            "    times = _precompiled.refreshed\n"
            "    assert not compiled() or times == [0, 0, 0, 1, 2, 2, 2, 3][len(calls) - 1]\n"
            "    return x\n"
        )
        assert results == ["", ""]


class TestAnswers:
    @pytest.mark.parametrize(
        "answer",
        [
            "np.ones(3) * (2 if compiled() else 1)",
            "np.float32(2 if compiled() else 1)",
            "[{'a': np.array(['x' if compiled() else 'y'])}]",
        ],
    )
    def test_what_is_no_tensor_counts(self, package: Package, answer: str) -> None:
        first, _ = package.problems(f"def body(x):\n    return {answer}\n")
        assert first.startswith("sample 1/2: output")

    @pytest.mark.parametrize(
        "answer",
        ["0.1 + (1e-8 if compiled() else 0)", "float('nan')", "np.array([float('nan')])"],
    )
    def test_what_is_as_good_as_equal_passes(self, package: Package, answer: str) -> None:
        assert package.problems(f"def body(x):\n    return {answer}\n") == ["", ""]

    def test_what_cannot_be_compared_is_said_once(self, package: Package) -> None:
        assert package.problems("def body(x):\n    return {'all': object()}\n") == ["", ""]
        assert package.notes() == [
            "sample 1/2: output['all'] is a object, which was not compared with eager",
        ]

    def test_random_numbers_excuse_values_and_nothing_else(self, package: Package) -> None:
        body = "def body(x):\n    return torch.rand(3 if compiled() or len(x) == 2 else 4) + compiled()\n"
        first, second = package.results(body)
        assert (first.problem, first.difference) == ("", None)
        assert "output has shape (3,), with eager (4,)" in second.problem


class TestNeverATraceback:
    @pytest.mark.parametrize(
        ("model", "text"),
        [
            ("def body(x): return x\ndef samples(): sys.exit('enough')\n", "SystemExit: enough"),
            ("def samples(): raise KeyboardInterrupt\n", "its samples cannot be run: KeyboardInterrupt ("),
            ("def body(x): return x\ndef samples(): os._exit(3)\n", "the verifying process ended with 3"),
            (
                "def body(x): os.kill(os.getpid(), 11)\n",
                "the verifying process was ended by SIGSEGV",
            ),
            (
                "class Odd:\n    def __deepcopy__(self, memo): raise SystemExit(5)\n"
                "def samples(): return [(Odd(),)]\n",
                "its samples cannot be run: SystemExit: 5 (",
            ),
            ("def samples(): return [('\\udc80',)]\ndef body(x): sys.exit(x)\n", "SystemExit: "),
        ],
    )
    def test_what_ends_it_is_a_sentence(self, package: Package, model: str, text: str) -> None:
        assert text in package.error(model)

    def test_a_runtime_that_fails_is_a_sentence(self, package: Package) -> None:
        (package.folder / "site/misbehaving/_precompiled/__init__.py").write_text("1 / 0")
        said = package.error("def body(x): return x\n")
        assert said == "misbehaving cannot be imported: ZeroDivisionError: division by zero"

    def test_a_torch_that_cannot_be_imported_is_a_sentence(
        self, package: Package, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(parent, "_servers", {})  # which could import it
        (package.folder / "site/torch").mkdir()
        (package.folder / "site/torch/__init__.py").write_text(
            "raise ImportError('libtorch.so: no such file')"
        )
        assert "its samples cannot be run: ImportError: libtorch.so: no such file" in package.error("")
