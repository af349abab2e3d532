"""What guards and calls lean on where a wheel runs."""

from __future__ import annotations

import functools
import importlib.util
import json
import subprocess
import sys
import weakref
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch._dynamo
import torch._dynamo.config
import torch._functorch.config
import torch._inductor.config
from torch._C._dynamo import eval_frame, guards

from hatch_precompile.backends.x86_64.levels import EXTENSIONS, LEVELS
from hatch_precompile.runtime import runtime

REPOSITORY = Path(__file__).parents[2]


class OfALibrary(torch.autograd.Function):
    """A checkpoint as other libraries have one, with other names for what it is given."""

    @staticmethod
    def forward(context: Any, function: Any, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        context.function, context.x = function, x
        with torch.no_grad():
            return function(x)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        x = context.x.detach().requires_grad_()
        with torch.enable_grad():
            y = context.function(x)
        torch.autograd.backward(y, gradient)
        return None, x.grad


class TestRuntime:
    def test_all_of_it_is_there_without_dynamo(self) -> None:
        code = (
            "import sys, torch\n"
            "from hatch_precompile.runtime import runtime\n"
            "private, _ = runtime('torch_internals.torch_private'), runtime('graphs.callers')\n"
            "runtime('loading.guards').guard_namespace()\n"
            "private.StateGuard(private._guards.GlobalStateGuard().__getstate__())\n"
            "loaded = [m for m in ('torch._dynamo', 'torch._inductor') if m in sys.modules]\n"
            "sys.exit(str(loaded) if loaded else 0)"
        )
        subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True)

    def test_code_can_be_kept_from_dynamo_which_looks_at_what_it_calls(self) -> None:
        private = runtime("torch_internals.torch_private")
        compiled: list[str] = []

        def backend(graph: Any, inputs: Any) -> Any:
            compiled.append("graph")
            return graph.forward

        def below(x: torch.Tensor) -> torch.Tensor:
            return x + 1

        def outer(x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            hooks.append(private.eval_frame_callback())
            return below(y) if calls_below else y

        private.leave_untraced_code(outer.__code__)
        hooks: list[Any] = []
        for calls_below, graphs in ((False, []), (True, ["graph"])):
            compiled.clear()
            assert torch.compile(outer, backend=backend)(torch.ones(1)).item() == 2 + calls_below
            assert compiled == graphs
        assert None not in hooks, "it can be seen there that somebody compiles"
        assert private.eval_frame_callback() is None

    def test_a_compile_with_fullgraph_counts_frames_of_compiled_code(self) -> None:
        private = runtime("torch_internals.torch_private")

        def served(x: torch.Tensor) -> torch.Tensor:
            if counts:
                private.count_as_compiled()
            return x

        private.leave_untraced_code(served.__code__)
        private.leave_untraced(private.count_as_compiled, below=True)
        call = torch.compile(served, backend="eager", fullgraph=True)
        counts = True
        call(torch.ones(1))
        counts = False
        if not hasattr(eval_frame, "set_fullgraph_compiled_frame_count"):  # torch 2.11 counts none
            assert call(torch.ones(1)) is not None
            return
        if torch.__version__ < (2, 13):  # which says so once in a process
            with pytest.warns(UserWarning, match="found no compiled frames"):
                call(torch.ones(1))
            return
        with pytest.raises(RuntimeError, match="found no compiled frames"):
            call(torch.ones(1))
        private.count_as_compiled()
        assert eval_frame.set_fullgraph_compiled_frame_count(-1) == -1, "nobody counts"

    def test_dynamo_says_when_it_traces(self) -> None:
        private = runtime("torch_internals.torch_private")

        def traced(x: torch.Tensor) -> torch.Tensor:
            return x + 1 if private.is_compiling() else x

        assert not private.is_compiling()
        assert torch.compile(traced, backend="eager", fullgraph=True)(torch.zeros(1)).item() == 1

    def test_a_check_of_tensors_remembers_the_dispatch_keys_it_is_made_under(self) -> None:
        private = runtime("torch_internals.torch_private")
        included = torch._C._dispatch_tls_local_include_set().raw_repr()
        excluded = torch._C._dispatch_tls_local_exclude_set().raw_repr()
        tensor = torch.ones(2)

        def check() -> Any:
            return guards.TensorGuards(tensor, dynamic_dims_sizes=[[2]], dynamic_dims_strides=[[1]])

        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutogradCPU)):
            elsewhere = check()
            with private.dispatching_as(included, excluded):
                here = check()
        assert not elsewhere.check(tensor)
        assert here.check(tensor)

    def test_torch_compiler_disable_is_seen_on_the_stack(self) -> None:
        may_serve = runtime("torch_internals.torch_private").may_serve
        assert torch.compiler.disable(may_serve)() is False
        assert torch._disable_dynamo(may_serve)() is True, "torch keeps only itself out"
        assert torch.compiler.disable(torch._disable_dynamo(may_serve))() is False
        assert may_serve() is True

    def test_dynamo_can_be_switched_off(self) -> None:
        import torch._dynamo.config as config

        may_serve = runtime("torch_internals.torch_private").may_serve
        with config.patch(disable=True):
            assert may_serve() is False
        assert may_serve() is True
        with config.patch(disable=False):
            assert may_serve() is True

    def test_whether_it_is_switched_off_is_seen_without_asking_its_configuration(self) -> None:
        import torch._dynamo.config as config

        class Asked(ModuleType):
            def __getattr__(self, name: str) -> Any:
                raise AssertionError(f"asked for {name}, which takes as long as the rest of a guard")

        like = Asked("config")
        vars(like).update(vars(config))
        is_switched_off = runtime("torch_internals.torch_private")._is_switched_off
        assert is_switched_off(like) is False
        with config.patch(disable=True):
            assert is_switched_off(like) is True
        assert is_switched_off(like) is False
        assert is_switched_off(ModuleType("config")) is False, "half imported"

    def test_the_global_state_is_json_and_the_thread_count_one_of_its_fields(self) -> None:
        state = json.loads(guards.GlobalStateGuard().__getstate__())
        assert set(state) - {"cuda_matmul_precision"} == {  # which came with torch 2.15
            "allow_bf16_reduce",
            "allow_fp16_reduce",
            "allow_tf32",
            "autocast_state",
            "default_dtype",
            "deterministic_algorithms",
            "deterministic_algorithms_warn_only",
            "grad_mode",
            "num_threads",
            "torch_function",
            "torch_function_all_disabled",
        }
        assert state["num_threads"] == torch.get_num_threads()

    def test_the_state_guard_follows_the_thread_count_and_nothing_else(self) -> None:
        state = runtime("torch_internals.torch_private").StateGuard(guards.GlobalStateGuard().__getstate__())
        threads = torch.get_num_threads()
        assert state.check()
        try:
            torch.set_num_threads(threads + 1)
            assert not state.check()
            assert state.rebase()
            assert not state.check(), "another thread may have the first count still"
        finally:
            torch.set_num_threads(threads)
        assert state.check() or state.rebase()
        with torch.no_grad():
            assert not state.check()
            assert not state.rebase()
            assert "grad_mode" in state.reason()

    def test_torchs_function_that_makes_a_python_tensor_has_its_name(self) -> None:
        assert runtime("graphs.callers")._wrapping_function()

    def test_tensor_guards_check_and_say_why(self) -> None:
        check = guards.TensorGuards(
            torch.empty(2, 3), dynamic_dims_sizes=[[None, 3]], dynamic_dims_strides=[[3, 1]]
        )
        assert check.check(torch.zeros(5, 3))
        assert not check.check(torch.zeros(5, 4))
        reason = check.check_verbose(torch.zeros(5, 3).double(), tensor_check_names=["L['x']"])
        assert "tensor 'L['x']' dtype mismatch. expected Float, actual Double" in reason

    @pytest.mark.parametrize(
        ("call", "calm"),
        [
            (torch._C._get_tracing_state, None),
            (torch._C._len_torch_dispatch_stack, 0),
            (torch._C._functorch.peek_interpreter_stack, None),
            (torch._C._len_torch_function_stack, 0),
        ],
    )
    def test_the_questions_about_who_is_watching(self, call: Any, calm: Any) -> None:
        assert call() == calm

    def test_calls_are_served_in_calm_and_false_under_each_watcher(self) -> None:
        import torch.autograd.forward_ad as forward_ad
        from torch.utils.flop_counter import FlopCounterMode

        may_serve = runtime("torch_internals.torch_private").may_serve
        assert may_serve()
        with FlopCounterMode(display=False):
            assert not may_serve()
        with forward_ad.dual_level():
            assert not may_serve()
        seen: list[bool] = []

        def look(x: torch.Tensor) -> torch.Tensor:
            seen.append(may_serve())
            return x

        torch.vmap(look)(torch.ones(2))
        assert seen == [False]
        assert may_serve()

    def test_a_symbolic_trace_is_seen(self) -> None:
        seen: list[bool] = []
        traced = runtime("torch_internals.torch_private").is_traced_symbolically
        torch.fx.symbolic_trace(lambda x: (seen.append(traced()), x)[1])
        assert [*seen, traced()] == [True, False]

    def test_both_calls_of_a_reentrant_checkpoint_are_seen(self) -> None:
        in_checkpoint = runtime("torch_internals.torch_private").in_checkpoint
        seen: list[bool] = []

        def look(x: torch.Tensor) -> torch.Tensor:
            seen.append(in_checkpoint())
            return x * 2

        class Forward(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return look(x)

        x = torch.ones(2, requires_grad=True)
        torch.utils.checkpoint.checkpoint(Forward(), x, use_reentrant=True).sum().backward()
        OfALibrary.apply(Forward(), x).sum().backward()
        with torch.no_grad():
            Forward()(x)
        assert [*seen, in_checkpoint()] == [True, True, True, True, False, False]

    def test_so_they_are_whatever_its_forward_is(self) -> None:
        in_checkpoint = runtime("torch_internals.torch_private").in_checkpoint
        seen: list[bool] = []

        def look(*args: torch.Tensor) -> torch.Tensor:
            seen.append(in_checkpoint())
            return args[-1] * 2

        class Mixin:
            @staticmethod
            @functools.wraps(look)
            def forward(*args: Any) -> Any:
                return look(*args)

        class WithAMixin(Mixin, torch.autograd.Function):
            @staticmethod
            def backward(context: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
                return look(gradient)

        class OfTwoParts(torch.autograd.Function):
            forward = staticmethod(functools.partial(look))

            @staticmethod
            def setup_context(context: Any, inputs: Any, output: Any) -> None:  # type: ignore[override]
                look(output)

            backward = WithAMixin.backward

        x = torch.ones(2, requires_grad=True)
        WithAMixin.apply(x).sum().backward()
        assert seen == [True, True]
        del seen[:]
        OfTwoParts.apply(x).sum().backward()
        assert [seen[0], seen[-1]] == [True, True]

    def test_so_they_are_where_a_library_has_put_something_around_the_first(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Before the runtime is imported, and without what a class method has."""
        apply = vars(torch.autograd.Function)["apply"]

        class Partial:
            def __get__(self, instance: Any, owner: Any) -> Any:
                return functools.partial(apply.__get__(None, owner))

        monkeypatch.setattr(torch.autograd.Function, "apply", Partial())
        known = runtime("torch_internals.torch_private")
        spec = importlib.util.spec_from_file_location(known.__name__, known.__file__)
        assert spec is not None and spec.loader is not None
        private = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(private)
        seen: list[bool] = []

        def look(x: torch.Tensor) -> torch.Tensor:
            seen.append(private.in_checkpoint())
            return x * 2

        OfALibrary.apply(look, torch.ones(2, requires_grad=True)).sum().backward()
        assert seen == [True, True]

    def test_looking_for_a_checkpoint_keeps_nothing_alive(self) -> None:
        in_checkpoint = runtime("torch_internals.torch_private").in_checkpoint

        class Forward(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> bool:
                between = x * 2
                seen = weakref.ref(between)
                assert not in_checkpoint()
                del between
                return seen() is None

        with torch.no_grad():
            assert Forward()(torch.ones(2))

    def test_steps_of_optimizers_are_seen_without_a_hook_of_modules(self) -> None:
        after_optimizer_steps = runtime("torch_internals.torch_private").after_optimizer_steps
        before = torch.utils.hooks.RemovableHandle.next_id
        seen: list[Any] = []
        weight = torch.nn.Parameter(torch.ones(2))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        after_optimizer_steps("a test", seen.append)
        try:
            optimizer.step()
        finally:
            after_optimizer_steps("a test", None)
        optimizer.step()
        assert seen == [optimizer]
        assert torch.utils.hooks.RemovableHandle.next_id == before

    def test_saved_tensors_hooks_are_asked_for(self) -> None:
        ask = torch._C._autograd._top_saved_tensors_default_hooks
        assert ask(True) is None
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
            assert ask(True) is not None

    def test_the_default_device_is_a_module_attribute(self) -> None:
        default_device = runtime("torch_internals.torch_private").default_device

        assert default_device() is None
        torch.set_default_device("meta")
        try:
            assert default_device() == torch.device("meta")
        finally:
            torch.set_default_device(None)
        with torch.device("meta"):
            assert torch._C._len_torch_function_stack() == 1

    def test_dispatch_keys_go_to_a_number_and_back(self) -> None:
        keys = torch._C._dispatch_keys(torch.empty(1))
        assert torch._C.DispatchKeySet.from_raw_repr(keys.raw_repr()) == keys
        with torch.inference_mode():
            assert torch._C._dispatch_keys(torch.empty(1)) != keys

    def test_tensors_become_handles_and_handles_tensors(self) -> None:
        tensor = torch.arange(3)
        handles = torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors([tensor])
        (back,) = torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs(handles)
        assert back.data_ptr() == tensor.data_ptr()

    def test_the_rest_is_there(self) -> None:
        assert isinstance(guards._torchinductor_pyobject_tensor_data_ptr, int)
        assert {"SKIP", "DEFAULT", "RUN_ONLY"} <= set(eval_frame._FrameAction.__members__)
        assert callable(eval_frame.set_code_exec_strategy)
        assert callable(torch.autograd.graph.increment_version)
        with torch._C._DisableAutocast():
            pass

    def test_a_cpu_says_what_it_can_as_true_and_false(self) -> None:
        capabilities = torch.cpu.get_capabilities()
        assert any(value is True for value in capabilities.values())
        if capabilities.get("architecture") == "x86_64":
            assert {*EXTENSIONS, *(flag for level in LEVELS.values() for flag in level)} <= set(capabilities)
        assert isinstance(torch.version.git_version, str)
