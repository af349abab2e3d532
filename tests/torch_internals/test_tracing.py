"""What a capture leans on in dynamo: the functions we stand in front of, and what it takes for constant."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
import subprocess
import sys
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
import torch
import torch._dynamo
import torch._dynamo.config
import torch._functorch.config
import torch._inductor.config
from torch._C._dynamo import guards
from torch._dynamo import convert_frame
from torch._dynamo.guards import CheckFunctionManager
from torch._dynamo.variables import builtin, functions

from hatch_precompile import inductor, tracing
from hatch_precompile.errors import Unsupported
from hatch_precompile.tracing.assumptions.patches import watching_assumptions
from hatch_precompile.tracing.guardtree import GuardRecorder

REPOSITORY = Path(__file__).parents[2]


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


class TestTracing:
    def test_the_functions_we_stand_in_front_of(self) -> None:
        assert parameters(CheckFunctionManager.__init__)[:3] == ["self", "f_code", "output_graph"]
        assert parameters(convert_frame._compile)[0] == "code"
        assert "guarded_code" in convert_frame.ConvertFrameReturn.__annotations__
        assert parameters(convert_frame.register_bytecode_hook) == ["hook"]

    def test_a_frame_is_seen_with_all_we_read_of_it(self) -> None:
        frames: list[tracing.FrameTrace] = []
        skips: list[tuple[CodeType, str]] = []
        recorder = GuardRecorder()

        def helper(x: torch.Tensor) -> torch.Tensor:
            return x + 1

        def target(x: torch.Tensor) -> torch.Tensor:
            return helper(torch.sin(x))

        torch._dynamo.reset()
        with (
            inductor.capture_settings({}, graphs_expected=1),
            recorder.recording(),
            tracing.tracing_frames(frames.append, lambda code, reason: skips.append((code, reason))),
        ):
            torch.compile(target, backend=lambda graph, _: graph.forward)(torch.ones(3))
        (frame,) = frames
        assert skips == []
        assert frame.code is target.__code__
        assert frame.new_code is not frame.code
        assert frame.frame_globals is globals()
        assert any(name.startswith("__compiled_fn_") for name in frame.injected)
        assert {code.co_name for code in frame.traced} == {"target", "helper"}
        tree = recorder.tree(frame.root)
        assert {child.accessor for child in tree.children} >= {"framelocals", "globals_dict"}
        assert {leaf.kind for leaf in tree.leaves} >= {
            "global_state_guard",
            "torch_function_mode_stack_guard",
        }
        assert frame.root.check({"x": torch.ones(3), "helper": helper})

    def test_what_a_package_compiles_itself_goes_to_our_backend(self) -> None:
        def doubled(x: torch.Tensor) -> torch.Tensor:
            return x * 2

        graphs: list[Any] = []
        frames: list[tracing.FrameTrace] = []

        def backend(graph: Any, inputs: Any) -> Any:
            graphs.append(graph)
            return graph.forward

        compiled = torch.compile(doubled, mode="reduce-overhead")
        with (
            tracing.compiling_with(backend),
            tracing.tracing_frames(frames.append, lambda *_: None),
        ):
            assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
        assert len(graphs) == 1
        assert [name for name in frames[0].injected if tracing.is_compiled(name)]
        assert tracing.inside_compile(compiled) is doubled
        assert tracing.inside_compile(doubled) is None
        assert tracing.inside_compile(torch.compiler.disable(doubled)) is None
        torch._dynamo.reset()

    def test_pytrees_registry_is_a_plain_dict_of_classes(self) -> None:
        registry = tracing.pytree_registry()
        assert type(registry) is dict
        assert registry is torch._dynamo.guards.torch.utils._pytree.SUPPORTED_NODES
        assert tuple in registry
        assert torch.Tensor not in registry

    def test_what_is_imported_with_the_first_compile(self) -> None:
        assert tracing.is_compiler(torch._dynamo)
        assert tracing.is_compiler(torch._dynamo.decorators)
        assert not tracing.is_compiler(torch._functorch)

    def test_what_was_patched_is_put_back(self) -> None:
        before = (CheckFunctionManager.__init__, convert_frame._compile, guards.GuardManager.add_lambda_guard)
        with (
            GuardRecorder().recording(),
            tracing.tracing_frames(lambda frame: None, lambda code, reason: None),
        ):
            assert CheckFunctionManager.__init__ is not before[0]
        assert before == (
            CheckFunctionManager.__init__,
            convert_frame._compile,
            guards.GuardManager.add_lambda_guard,
        )

    def test_the_settings_of_a_capture_exist(self) -> None:
        """config.patch raises for a name that is gone."""
        with inductor.capture_settings({}, graphs_expected=9):
            assert torch._inductor.config.cpp_wrapper is True
            assert torch._inductor.config.cpp.dynamic_threads is True
            assert torch._dynamo.config.record_runtime_overhead is False
        assert torch._inductor.config.cpp_wrapper is False

    def test_compiled_headers_are_kept_where_the_build_says(self, tmp_path: Path) -> None:
        from torch._inductor import codecache

        before = codecache._HEADER_DIR, codecache._HEADER_LOCK_DIR
        with inductor.capture_settings({}, graphs_expected=9, headers=str(tmp_path)):
            now = codecache._HEADER_DIR, codecache._HEADER_LOCK_DIR
        assert now == (str(tmp_path), str(tmp_path / "locks"))
        assert before == (codecache._HEADER_DIR, codecache._HEADER_LOCK_DIR) != now

    def test_numbers_stay_symbolic_where_dynamo_thinks_it_has_seen_several(self) -> None:
        from torch._dynamo import pgo
        from torch._dynamo.variables import builder

        assert builder.auto_dynamic is pgo.auto_dynamic
        assert parameters(builder.process_automatic_dynamic)[:2] == ["tx", "name"]
        process = builder.process_automatic_dynamic
        fields = {spec.name for spec in dataclasses.fields(pgo.FrameStateSizeEntry)}
        assert {"scalar", "size"} <= fields
        with inductor.capture_settings({}, 1, numbers=["n"]):
            assert not torch._dynamo.config.automatic_dynamic_local_pgo
            assert torch.compiler.config.dynamic_sources == "L['n']"
            assert builder.process_automatic_dynamic is not process
        assert torch.compiler.config.dynamic_sources == ""
        assert builder.process_automatic_dynamic is process

    def test_graph_breaks_are_counted_with_their_reasons(self) -> None:
        from torch._dynamo.utils import counters

        counters["graph_break"]["because"] += 1
        assert "because" in tracing.graph_break_reasons()
        assert tracing.graph_break_reasons() == []


class TestFullgraph:
    """Dynamo's words for what it gives up on, and takes into the graph with fullgraph=True."""

    @staticmethod
    def number(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = x * x.sum().item()
        return x

    @staticmethod
    def numbers(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = x * sum(x.int().tolist())
        return x

    @staticmethod
    def size(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = x + x.nonzero().sum()
        return x

    @staticmethod
    def branch(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = x.sin() if x.sum() > 0 else x.cos()
        return x

    @pytest.mark.parametrize(
        ("name", "wanted"), [("number", True), ("numbers", True), ("size", True), ("branch", False)]
    )
    def test_it_is_wanted_for_what_only_data_tells(self, name: str, wanted: bool) -> None:
        torch._dynamo.reset()
        reasons: list[str] = []
        function = getattr(self, name)
        with tracing.tracing_frames(lambda _: None, lambda _, reason: reasons.append(reason)):
            torch.compile(function, backend="eager")(torch.ones(3))
        assert [tracing.wants_fullgraph(reason) for reason in reasons] == [wanted]
        if wanted:
            torch._dynamo.reset()  # that it was skipped
            torch.compile(function, backend="eager", fullgraph=True)(torch.ones(3))


class TestFolding:
    """Where dynamo takes something for constant. What it then is, tests/inputs shows."""

    def test_every_place_is_there_and_is_put_back(self) -> None:
        place = functions.SkipFunctionVariable
        before = vars(place)["call_function"]
        with watching_assumptions():
            assert vars(place)["call_function"] is not before
        assert vars(place)["call_function"] is before

    def test_a_place_that_is_gone_stops_the_build(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(builtin.BuiltinVariable, "call_dir")
        with pytest.raises(Unsupported, match=r"has no BuiltinVariable\.call_dir"), watching_assumptions():
            pass

    def test_a_handler_that_was_made_before_is_watched(self) -> None:
        """Dynamo keeps one for each combination of types, with the method that was there then."""

        def names(x: torch.Tensor) -> torch.Tensor:
            return x + len(dir(torch.nn.Identity))

        found: list[tracing.FrameTrace] = []
        for watched in (False, True, False):
            torch._dynamo.reset()
            with (
                tracing.tracing_frames(found.append, lambda *_: None) if watched else contextlib.nullcontext()
            ):
                torch.compile(names, backend="eager")(torch.ones(1))
        (frame,) = found
        assert [call.function for call in frame.assumed.calls] == [dir]

    def test_what_is_found_and_what_is_met_twice_passes_two_functions(self) -> None:
        from torch._dynamo.symbolic_convert import InstructionTranslatorBase
        from torch._dynamo.variables import builder, lazy

        assert parameters(InstructionTranslatorBase.push) == ["self", "val"]
        assert parameters(builder.make_dupe_guard) == ["obj_source", "dupe_source"]
        assert parameters(lazy.LazyVariableTracker.is_realized) == ["self"]

    def test_what_is_not_there_is_looked_up_with_the_names_of_this_torch(self) -> None:
        """In a module's dicts and its class's, on functions and modules: our own code looks, too."""

        class Looking(torch.nn.Linear):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                if hasattr(self, "missing") or hasattr(parameters, "missing") or hasattr(torch, "missing"):
                    x = x + 1
                return super().forward(x) * getattr(self, "factor", 2)

        found: list[tracing.FrameTrace] = []
        with tracing.tracing_frames(found.append, lambda *_: None):
            torch.compile(Looking(2, 2), backend="eager")(torch.ones(1, 2))
        assert found[-1].assumed.lacking
        assert ("torch", "missing") in found[-1].assumed.absent

    def test_globals_of_the_standard_library_have_a_source_of_their_own(self) -> None:
        from torch._dynamo.source import SkipGuardSource

        assert SkipGuardSource.__name__ == "SkipGuardSource"

    def test_hooks_of_modules_are_numbered(self) -> None:
        before = torch.utils.hooks.RemovableHandle.next_id
        torch.nn.Linear(1, 1).register_forward_hook(lambda *_: None).remove()
        assert torch.utils.hooks.RemovableHandle.next_id == before + 1


def test_settings_are_the_same_in_each_process(tmp_path: Path) -> None:
    code = "from hatch_precompile.inductor import compiler_settings as found; print(found())"
    answers = set()
    for seed in ("1", "2"):
        folder = tmp_path / seed
        folder.mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(REPOSITORY)}
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        answers.add(done.stdout)
    assert len(answers) == 1
    assert "max_fusion_size" in answers.pop()
