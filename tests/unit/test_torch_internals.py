"""Fails first when torch changes under us: every private API the plugin and the runtime lean on.

Each test names what would break. What is listed here was read from torch 2.13.0.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import platform
import re
import subprocess
import sys
import weakref
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
import torch
import torch._dynamo
import torch._dynamo.config
import torch._functorch.config
import torch._inductor.config
from torch._C._dynamo import eval_frame, guards
from torch._dynamo import convert_frame
from torch._dynamo.guards import CheckFunctionManager, GuardBuilder
from torch._dynamo.variables import builtin, functions
from torch._functorch._aot_autograd import runtime_wrappers, schemas
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

from hatch_precompile import torch_internals
from hatch_precompile.config.options import FIXED, check_options
from hatch_precompile.config.variants import _EXTENSIONS, _LEVELS, _needed
from hatch_precompile.errors import ConfigError, Unsupported
from hatch_precompile.lower.guards.leaves import _LEAVES as LEAVES
from hatch_precompile.runtime import runtime
from hatch_precompile.torch_internals import libraries, operators, pytrees, vectors, wrapping
from hatch_precompile.torch_internals.folding.watching import watching_folding
from hatch_precompile.torch_internals.guardtree import ACCESSORS, GuardRecorder
from hatch_precompile.torch_internals.parallel_checks import THROWING_HELPERS

REPOSITORY = Path(__file__).parents[2]


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def methods(suffix: str = "", prefix: str = "") -> set[str]:
    """Methods of the classes guard trees are built with."""
    names = {name for cls in torch_internals.guard_manager_classes() for name in vars(cls)}
    return {name for name in names if name.startswith(prefix) and name.endswith(suffix)}


class TestGuardVocabulary:
    # Known, and refused by lowering with a sentence: no accessor of ours leads there.
    REFUSED_ACCESSORS = frozenset({"clone_manager"})
    ROOT_LEAVES = frozenset(
        {
            "add_default_device_guard",
            "add_dual_level_match_guard",
            "add_epilogue_lambda_guard",
            "add_global_state_guard",
            "add_lambda_guard",
            "add_tensor_match_guard",
            "add_torch_function_mode_stack_guard",
        }
    )
    REFUSED_LEAVES = frozenset(
        {
            "add_complex_is_nan_guard",
            "add_dispatch_key_set_guard",
            "add_fake_script_type_match_guard",
            "add_range_iterator_match_guard",
            "add_tuple_iterator_length_guard",
        }
    )

    def test_there_is_no_accessor_we_do_not_know(self) -> None:
        assert methods(suffix="_manager") - self.REFUSED_ACCESSORS - set(ACCESSORS) == set()

    def test_there_is_no_check_we_do_not_know(self) -> None:
        lowered = {f"add_{kind}" for kind in LEAVES}
        assert methods(prefix="add_") - lowered - self.ROOT_LEAVES - self.REFUSED_LEAVES == set()

    def test_every_check_we_lower_is_still_there(self) -> None:
        assert {f"add_{kind}" for kind in LEAVES} | self.ROOT_LEAVES <= methods(prefix="add_")

    def test_other_methods_are_read_only(self) -> None:
        """Something that adds to a tree under another kind of name would go unrecorded."""
        rest = {
            name
            for name in methods()
            if not name.startswith(("_", "add_", "get_", "is_", "has_", "mark_"))
            and not name.endswith("_manager")
        }
        # The last two are torch 2.15's: for a guard read from a file, and for several accelerators.
        later = {"set_local_state", "set_compile_on_one_rank"}
        assert rest - later == {"attach_compile_id", "check", "check_verbose", "fail_count"}

    def test_accessors_take_their_key_by_the_name_we_read(self) -> None:
        """pybind writes the signature into the docstring; dynamo calls some by position."""
        for cls in torch_internals.guard_manager_classes():
            for name in set(vars(cls)) & set(ACCESSORS):
                key = ACCESSORS[name]
                first = vars(cls)[name].__doc__.partition("self: ")[2].split(", ")[1].partition(":")[0]
                assert first in (key or "source", "arg0"), name  # arg0: raises, whatever it is given

    def test_relational_guards_are_called_through_their_module(self) -> None:
        module, names = torch_internals.relational_guards()
        present = {name for name in vars(module) if name.startswith("install_") and name.endswith("_guard")}
        assert present - {"install_guard"} == set(names)

    def test_symbolic_guards_come_as_text(self) -> None:
        method = torch_internals.guard_builder().add_python_lambda_leaf_guard_to_root
        assert parameters(method) == [
            "self",
            "code_parts",
            "verbose_code_parts",
            "closure_vars",
            "is_epilogue",
        ]
        assert torch_internals.guard_builder() is GuardBuilder


class TestTracing:
    def test_the_functions_we_stand_in_front_of(self) -> None:
        assert parameters(CheckFunctionManager.__init__)[:3] == ["self", "f_code", "output_graph"]
        assert parameters(convert_frame._compile)[0] == "code"
        assert {"guarded_code", "skip_reason"} <= set(convert_frame.ConvertFrameReturn.__annotations__)
        assert parameters(convert_frame.register_bytecode_hook) == ["hook"]

    def test_a_frame_is_seen_with_all_we_read_of_it(self) -> None:
        frames: list[torch_internals.FrameTrace] = []
        skips: list[tuple[CodeType, str]] = []
        recorder = GuardRecorder()

        def helper(x: torch.Tensor) -> torch.Tensor:
            return x + 1

        def target(x: torch.Tensor) -> torch.Tensor:
            return helper(torch.sin(x))

        torch._dynamo.reset()
        with (
            torch_internals.capture_settings({}, graphs_expected=1),
            recorder.recording(),
            torch_internals.tracing_frames(frames.append, lambda code, reason: skips.append((code, reason))),
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
        frames: list[torch_internals.FrameTrace] = []

        def backend(graph: Any, inputs: Any) -> Any:
            graphs.append(graph)
            return graph.forward

        compiled = torch.compile(doubled, mode="reduce-overhead")
        with (
            torch_internals.compiling_with(backend),
            torch_internals.tracing_frames(frames.append, lambda *_: None),
        ):
            assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
        assert len(graphs) == 1
        assert [name for name in frames[0].injected if torch_internals.is_compiled(name)]
        assert torch_internals.inside_compile(compiled) is doubled
        assert torch_internals.inside_compile(doubled) is None
        assert torch_internals.inside_compile(torch.compiler.disable(doubled)) is None
        torch._dynamo.reset()

    def test_pytrees_registry_is_a_plain_dict_of_classes(self) -> None:
        registry = torch_internals.pytree_registry()
        assert type(registry) is dict
        assert registry is torch._dynamo.guards.torch.utils._pytree.SUPPORTED_NODES
        assert tuple in registry
        assert torch.Tensor not in registry

    def test_what_is_imported_with_the_first_compile(self) -> None:
        assert torch_internals.is_compiler(torch._dynamo)
        assert torch_internals.is_compiler(torch._dynamo.decorators)
        assert not torch_internals.is_compiler(torch._functorch)

    def test_what_was_patched_is_put_back(self) -> None:
        before = (CheckFunctionManager.__init__, convert_frame._compile, guards.GuardManager.add_lambda_guard)
        with (
            GuardRecorder().recording(),
            torch_internals.tracing_frames(lambda frame: None, lambda code, reason: None),
        ):
            assert CheckFunctionManager.__init__ is not before[0]
        assert before == (
            CheckFunctionManager.__init__,
            convert_frame._compile,
            guards.GuardManager.add_lambda_guard,
        )

    def test_the_settings_of_a_capture_exist(self) -> None:
        """config.patch raises for a name that is gone."""
        with torch_internals.capture_settings({}, graphs_expected=9):
            assert torch._inductor.config.cpp_wrapper is True
            assert torch._inductor.config.cpp.dynamic_threads is True
            assert torch._dynamo.config.record_runtime_overhead is False
        assert torch._inductor.config.cpp_wrapper is False

    def test_compiled_headers_are_kept_where_the_build_says(self, tmp_path: Path) -> None:
        from torch._inductor import codecache

        before = codecache._HEADER_DIR, codecache._HEADER_LOCK_DIR
        with torch_internals.capture_settings({}, graphs_expected=9, headers=str(tmp_path)):
            now = codecache._HEADER_DIR, codecache._HEADER_LOCK_DIR
        assert now == (str(tmp_path), str(tmp_path / "locks"))
        assert before == (codecache._HEADER_DIR, codecache._HEADER_LOCK_DIR) != now

    def test_numbers_stay_symbolic_where_dynamo_thinks_it_has_seen_several(self) -> None:
        from torch._dynamo import pgo
        from torch._dynamo.variables import builder

        assert builder.auto_dynamic is pgo.auto_dynamic
        assert parameters(builder.process_automatic_dynamic)[:2] == ["tx", "name"]
        assert "scalar" in {spec.name for spec in dataclasses.fields(pgo.FrameStateSizeEntry)}
        process = builder.process_automatic_dynamic
        with torch_internals.capture_settings({}, 1, numbers=["n"]):
            assert torch.compiler.config.dynamic_sources == "L['n']"
            assert builder.process_automatic_dynamic is not process
        assert torch.compiler.config.dynamic_sources == ""
        assert builder.process_automatic_dynamic is process

    def test_graph_breaks_are_counted_with_their_reasons(self) -> None:
        from torch._dynamo.utils import counters

        counters["graph_break"]["because"] += 1
        assert "because" in torch_internals.graph_break_reasons()
        assert torch_internals.graph_break_reasons() == []


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
        with torch_internals.tracing_frames(lambda _: None, lambda _, reason: reasons.append(reason)):
            torch.compile(function, backend="eager")(torch.ones(3))
        assert [torch_internals.wants_fullgraph(reason) for reason in reasons] == [wanted]
        if wanted:
            torch._dynamo.reset()  # that it was skipped
            torch.compile(function, backend="eager", fullgraph=True)(torch.ones(3))


class TestFolding:
    """Where dynamo takes something for constant. What it then is, tests/inputs shows."""

    def test_every_place_is_there_and_is_put_back(self) -> None:
        place = functions.SkipFunctionVariable
        before = vars(place)["call_function"]
        with watching_folding():
            assert vars(place)["call_function"] is not before
        assert vars(place)["call_function"] is before

    def test_a_place_that_is_gone_stops_the_build(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(builtin.BuiltinVariable, "call_hash")
        with pytest.raises(Unsupported, match=r"has no BuiltinVariable\.call_hash"), watching_folding():
            pass

    def test_globals_of_the_standard_library_have_a_source_of_their_own(self) -> None:
        from torch._dynamo.source import SkipGuardSource

        assert SkipGuardSource.__name__ == "SkipGuardSource"

    def test_hooks_of_modules_are_numbered(self) -> None:
        before = torch.utils.hooks.RemovableHandle.next_id
        torch.nn.Linear(1, 1).register_forward_hook(lambda *_: None).remove()
        assert torch.utils.hooks.RemovableHandle.next_id == before + 1


class TestInductor:
    def test_the_parts_of_a_compile_we_stand_between(self) -> None:
        from torch._inductor.compile_fx import compile_fx, compile_fx_inner

        assert parameters(compile_fx)[:3] == ["model_", "example_inputs_", "inner_compile"]
        assert parameters(compile_fx_inner)[:2] == ["gm", "example_inputs"]

    def test_a_compiled_graph_says_what_we_read_of_it(self) -> None:
        from torch._inductor.output_code import CompiledFxGraph

        read = {"source_code", "constants", "inputs_to_check", "output_strides", "torchbind_constants"}
        assert {*read, "opaque_value_type_classes"} <= set(CompiledFxGraph.__annotations__)

    def test_the_wrapper_loads_its_library_through_a_class_method_that_is_put_back(self) -> None:
        from torch._inductor.codecache import CppWrapperCodeCache

        assert inspect.ismethod(CppWrapperCodeCache.load_pybinding)
        before = dict(vars(CppWrapperCodeCache))
        with libraries.library_paths(torch_internals.CompiledGraph(), "somewhere") as paths:
            assert vars(CppWrapperCodeCache) != before
        assert paths == []
        assert vars(CppWrapperCodeCache) == before

    def test_a_python_wrapper_loads_its_kernels_one_by_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from torch._inductor.async_compile import AsyncCompile
        from torch._inductor.codecache import CppPythonBindingsCodeCache

        assert isinstance(vars(CppPythonBindingsCodeCache)["load_pybinding"], classmethod)
        monkeypatch.setattr(
            CppPythonBindingsCodeCache, "load_pybinding", lambda types, source: [types, source]
        )
        with torch._inductor.config.patch(compile_threads=1):
            assert AsyncCompile().cpp_pybinding(["float*"], "source") == [["float*"], "source"]

    def test_operators_of_a_python_wrapper_are_torchs(self) -> None:
        from torch._inductor.select_algorithm import extern_kernels

        assert extern_kernels.mm is torch.mm
        assert extern_kernels.addmm is torch.addmm
        assert extern_kernels.bmm is torch.bmm

    def test_what_inductor_raises_says_why(self) -> None:
        from torch._inductor.exc import InductorError

        assert InductorError(NotImplementedError("why"), None).inner_exception.args == ("why",)

    def test_functions_of_a_kernel_that_throw_are_known(self) -> None:
        """Whatever throws in torch's header for kernels must be found in a parallel region."""
        header = Path(torch.__file__).parent / "include/torch/csrc/inductor/cpp_prefix.h"
        text = re.sub(r"//[^\n]*", "", header.read_text())
        names = {"TORCH_CHECK", "throw"}
        while True:
            definitions = re.split(r"\n}\n", text)
            callers = {
                re.findall(r"(\w+)\s*\((?=[^()]*(?:\([^()]*\))?[^()]*\)\s*(?:const )?\{)", each)[0]
                for each in definitions
                if re.search(rf"\b(?:{'|'.join(names)})\b\s*\(", each) and "#define" not in each
            }
            if callers <= names:
                break
            names |= callers
        internal = {"inductor_cpu_note_integer_div_by_zero", "inductor_cpu_throw_if_integer_div_error"}
        # Never in code that inductor writes: for a number of elements that no vector has.
        shuffles = {
            name for name in names if name.startswith(("vec_shuffle_down", "vec_reduce_all", "welford"))
        }
        assert names - internal - shuffles - {"TORCH_CHECK", "throw"} == set(THROWING_HELPERS)

    def test_a_division_by_zero_is_noted_in_lines_that_we_take_out(self) -> None:
        from torch._inductor.codegen import cpp

        source = inspect.getsource(cpp.KernelGroup.codegen_group)
        lines = [line for line in source.splitlines() if "integer_div" in line]
        assert len(lines) == 4
        assert all("inductor_cpu_integer_div_error" in line for line in lines)

    def test_calls_of_operators_go_through_one_method(self) -> None:
        from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu

        assert parameters(CppWrapperCpu._generate_fallback_kernel_jit) == [
            "self",
            "buf_name",
            "python_kernel_name",
            "get_args",
            "op_overload",
            "raw_args",
            "output_args",
            "outputs",
        ]
        assert hasattr(CppWrapperCpu, "generate_fallback_kernel_with_runtime_lookup_python")

    def test_an_operator_implemented_in_python_is_told(self) -> None:
        library = torch.library.Library("precompile_tests", "FRAGMENT")
        for name in ("computed", "described"):
            library.define(f"{name}(Tensor x) -> Tensor")
        library.impl("computed", lambda x: x.clone(), "CPU")
        library.impl("described", lambda x: x, "Meta")
        custom = torch.library.custom_op(
            "precompile_tests::custom", lambda x: x.clone(), mutates_args=(), schema="(Tensor x) -> Tensor"
        )
        assert custom is not None
        ours = torch.ops.precompile_tests
        told = [
            operators.is_python_operator(op.default) for op in (ours.computed, ours.custom, ours.described)
        ]
        assert told == [True, True, False]
        assert not operators.is_python_operator(torch.ops.aten.mm.default)

    @pytest.mark.parametrize("name", ["cpp.march", "cpp.dynamic_threads", "cpp_wrapper"])
    def test_a_variants_settings_exist(self, name: str) -> None:
        owner: Any = torch._inductor.config
        for part in name.split("."):
            owner = getattr(owner, part)

    def test_what_the_build_sets_itself_exists_and_no_author_may_set(self) -> None:
        before = torch._inductor.config.save_config_portable()
        with torch_internals.capture_settings({}, graphs_expected=9):
            after = torch._inductor.config.save_config_portable()
        changed = {name for name in after if after[name] != before[name]}
        assert "cpp_wrapper" in changed
        for name in changed | {"cpp.march", "cpp.simdlen", "freezing", "assert_indirect_indexing"}:
            with pytest.raises(ConfigError, match="that the build makes itself"):
                check_options({name: None}, "options")
        for name in FIXED:
            owner: Any = torch._inductor.config
            for part in filter(None, name.split(".")):
                assert hasattr(owner, part), name
                owner = getattr(owner, part)

    def test_the_architecture_may_be_followed_by_another_flag(self) -> None:
        from torch._inductor import cpp_builder

        with torch._inductor.config.patch({"cpp.march": "x86-64-v3 -mtune=native"}):
            command = cpp_builder.CppBuilder("graph", ["graph.cpp"], cpp_builder.CppTorchOptions())
            assert "-march=x86-64-v3 -mtune=native" in command.get_command_line()

    @pytest.mark.skipif(platform.machine() != "x86_64", reason="the vectors of x86-64")
    @pytest.mark.parametrize(
        ("level", "extensions", "picked"),
        [
            ("x86-64-v2", (), None),
            ("x86-64-v3", (), ("VecAVX2", "-mavx2 -mfma -mf16c")),
            ("x86-64-v4", (), ("VecAVX512", "-mavx512f -mavx512dq -mavx512vl -mavx512bw -mfma")),
            ("x86-64-v4", _EXTENSIONS, ("VecAMX", "-mavx512bf16 -mamx-tile")),
        ],
    )
    def test_vectors_are_those_a_variant_asks_a_cpu_for(
        self,
        monkeypatch: pytest.MonkeyPatch,
        level: str,
        extensions: tuple[str, ...],
        picked: tuple[str, str] | None,
    ) -> None:
        """On a machine that has everything, and has found out that it has BF16."""
        from torch._inductor import cpu_vec_isa

        amx, avx512 = cpu_vec_isa.VecAMX(), cpu_vec_isa.VecAVX512()
        amx._is_avx512_bf16_supported = avx512._is_avx512_bf16_supported = True
        everything = [amx, cpu_vec_isa.VecAVX512VNNI(), avx512, cpu_vec_isa.VecAVX2()]
        monkeypatch.setattr(cpu_vec_isa, "valid_vec_isa_list", lambda: everything)
        monkeypatch.setattr(cpu_vec_isa, "supported_vec_isa_list", [*everything, cpu_vec_isa.VecNEON()])
        with vectors.vectors_within((*_needed(level), *extensions)):
            isa = cpu_vec_isa.pick_vec_isa()
        if picked is None:
            assert isa is cpu_vec_isa.invalid_vec_isa
        else:
            name, flags = picked
            assert type(isa).__name__ == name
            assert set(flags.split()) <= set(isa.build_arch_flags().split())
            assert extensions or "-mavx512bf16" not in isa.build_arch_flags()

    @pytest.mark.skipif(platform.machine() != "x86_64", reason="the vectors of x86-64")
    @pytest.mark.parametrize("level", ["x86-64", "x86-64-v3", "x86-64-v4"])
    @pytest.mark.parametrize("extensions", [(), ("avx512_bf16", "avx512_vnni")])
    def test_whether_vectors_work_here_is_not_asked(
        self, monkeypatch: pytest.MonkeyPatch, level: str, extensions: tuple[str, ...]
    ) -> None:
        """Each answer takes a compiler and a process."""
        from torch._inductor import cpu_vec_isa

        asked: list[str] = []
        monkeypatch.setattr(cpu_vec_isa.VecISA, "check_build", lambda isa, code: asked.append(code) or True)
        for _ in range(3):
            with vectors.vectors_within((*_needed(level), *extensions)):
                isa = cpu_vec_isa.pick_vec_isa()
                if level == "x86-64":
                    assert isa is cpu_vec_isa.invalid_vec_isa
                    continue
                assert isa
                assert "-mavx512bf16" not in isa.build_arch_flags()
        assert asked == []

    @pytest.mark.parametrize(
        "name",
        [
            "AOTDedupeWrapper",
            "AOTDispatchSubclassWrapper",
            "AOTSyntheticBaseWrapper",
            "EffectTokensWrapper",
            "FunctionalizedRngRuntimeWrapper",
            "RuntimeWrapper",
        ],
    )
    def test_aotautograds_wrappers_are_put_on_the_same_way(self, name: str) -> None:
        wrapper = getattr(runtime_wrappers, name)
        assert parameters(wrapper.post_compile) == ["self", "compiled_fn", "aot_config", "runtime_metadata"]
        assert dataclasses.is_dataclass(wrapper)

    def test_the_wrapper_for_gradients_takes_what_the_runtime_gives_it(self) -> None:
        spec = {field.name for field in dataclasses.fields(runtime_wrappers.AOTDispatchAutogradCompileSpec)}
        names = {"compiled_fw_func", "compiled_bw_func", "lazy_backward_info", "bw_compiler", "aot_config"}
        assert names | {"fw_metadata", "try_save_cache_entry"} <= spec
        assert parameters(runtime_wrappers.AOTDispatchAutograd.post_compile) == ["spec"]

    def test_there_is_no_wrapper_we_do_not_know(self) -> None:
        base = runtime_wrappers.CompilerWrapper
        found = {
            name
            for name, value in vars(runtime_wrappers).items()
            if isinstance(value, type) and issubclass(value, base) and value is not base
        }
        known = {
            "AOTDedupeWrapper",
            "AOTDispatchSubclassWrapper",
            "AOTSyntheticBaseWrapper",
            "DebugAssertWrapper",
            "EffectTokensWrapper",
            "FakifiedOutWrapper",
            "FunctionalizedRngRuntimeWrapper",
            "RuntimeWrapper",
        }
        assert found - known == set()

    def test_the_metadata_of_a_graph_has_what_we_read(self) -> None:
        names = {"mutated_inp_runtime_indices", "mutated_graph_handled_indices_seen_by_autograd"}
        names |= {"num_intermediate_bases", "grad_enabled_mutation", "output_info", "input_info"}
        names |= {"act_input_indices", "subclass_inp_meta", "subclass_fw_graph_out_meta"}
        meta = schemas.ViewAndMutationMeta
        assert names <= {spec.name for spec in dataclasses.fields(meta)} | set(vars(meta)) | _assigned(meta)
        assert {"output_type", "base_idx"} <= {
            spec.name for spec in dataclasses.fields(schemas.OutputAliasInfo)
        }
        assert {"mutates_metadata", "mutates_storage_metadata"} <= {
            spec.name for spec in dataclasses.fields(schemas.InputAliasInfo)
        }

    def test_what_wraps_tensors_has_what_we_read(self) -> None:
        known = schemas.SubclassCreationMeta
        assert {"attrs", "outer_size", "outer_stride"} <= {spec.name for spec in dataclasses.fields(known)}
        kinds = {name for name in vars(schemas) if name in ("PlainTensorMeta", "OpaqueMeta", known.__name__)}
        assert len(kinds) == 3 and not hasattr(schemas.PlainTensorMeta, "attrs")

    def test_there_is_no_kind_of_output_we_do_not_know(self) -> None:
        assert {kind.name for kind in schemas.OutputType} == {
            "alias_of_input",
            "alias_of_intermediate",
            "alias_of_intermediate_base_is_user_output",
            "alias_of_intermediate_save_as_output",
            "custom_function_view",
            "is_input",
            "non_alias",
            "unsafe_view_alias",
        }


def _assigned(cls: Any) -> set[str]:
    """Attributes a class sets on itself in __post_init__."""
    return {name for name in cls.__post_init__.__code__.co_names if not name.startswith("_")}


SCHEMAS = {
    "_linear_pointwise.default": "(Tensor X, Tensor W, Tensor? B, str attr, Scalar?[] scalars, "
    "str? algorithm) -> Tensor Y",
    "_linear_pointwise.binary": "(Tensor X, Tensor other, Tensor W, Tensor? B, str attr) -> Tensor Y",
    "_reorder_linear_weight.default": "(Tensor self, int? batch_size=None) -> Tensor Y",
    "_convolution_pointwise.default": "(Tensor X, Tensor W, Tensor? B, int[] padding, int[] stride, "
    "int[] dilation, int groups, str attr, Scalar?[] scalars, str? algorithm) -> Tensor Y",
    "_reorder_convolution_weight.default": "(Tensor self, int[2] padding=0, int[2] stride=1, "
    "int[2] dilation=1, int groups=1, int[]? input_size=None) -> Tensor Y",
}


class TestLayers:
    """What linear layers and fixed weights are made with (linear.py, weights.py)."""

    @pytest.mark.parametrize("name", SCHEMAS)
    def test_operators_of_onednn_take_what_they_did(self, name: str) -> None:
        packet, _, overload = name.partition(".")
        schema = str(getattr(getattr(torch.ops.mkldnn, packet), overload)._schema)
        assert schema[schema.index("(") :] == SCHEMAS[name]

    def test_torchs_c_functions_are_called_as_they_are_declared(self) -> None:
        folder = Path(torch.__file__).parent / "include/torch/csrc/inductor/aoti_torch"
        text = " ".join(
            path.read_text() for path in (folder / "c/shim_cpu.h", folder / "generated/c_shim_cpu.h")
        )
        text = re.sub(r"\s+", " ", text)
        handle = "AtenTensorHandle"
        assert (
            f"aoti_torch_cpu__linear_pointwise( {handle} X, {handle} W, {handle}* B, const char* attr, "
            f"const double** scalars, int64_t scalars_len_, const char** algorithm, {handle}* ret0)"
        ) in text
        assert (
            f"aoti_torch_cpu_addmm_out({handle} out, {handle} self, {handle} mat1, {handle} mat2, "
            "double beta, double alpha)"
        ) in text
        assert f"aoti_torch_cpu_mm_out({handle} out, {handle} self, {handle} mat2)" in text

    def test_lowerings_have_the_places_that_are_replaced(self) -> None:
        from torch._inductor import mkldnn_ir
        from torch._inductor.codegen.wrapper import PythonWrapperCodegen
        from torch._inductor.lowering import lowerings

        aten, fused = torch.ops.aten, torch.ops.mkldnn._linear_pointwise
        assert {aten.addmm.default, aten.mm.default, fused.default, fused.binary} <= lowerings.keys()
        create = mkldnn_ir.LinearUnary.create
        assert parameters(create) == ["x", "w", "B", "attr", "scalars", "algorithm"]
        assert parameters(mkldnn_ir.LinearBinary.create) == ["x", "y", "w", "B", "attr"]
        written = inspect.getsource(PythonWrapperCodegen.codegen_input_size_asserts)
        assert "self._pending_input_asserts[name] = " in written


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
            "private, _ = runtime('torch_private'), runtime('graphs')\n"
            "private.guard_namespace()\n"
            "private.StateGuard(private._guards.GlobalStateGuard().__getstate__())\n"
            "loaded = [m for m in ('torch._dynamo', 'torch._inductor') if m in sys.modules]\n"
            "sys.exit(str(loaded) if loaded else 0)"
        )
        subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True)

    def test_code_can_be_kept_from_dynamo_which_looks_at_what_it_calls(self) -> None:
        private = runtime("torch_private")
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
        private = runtime("torch_private")

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
        with pytest.raises(RuntimeError, match="found no compiled frames"):
            call(torch.ones(1))
        private.count_as_compiled()
        assert eval_frame.set_fullgraph_compiled_frame_count(-1) == -1, "nobody counts"

    def test_dynamo_says_when_it_traces(self) -> None:
        private = runtime("torch_private")

        def traced(x: torch.Tensor) -> torch.Tensor:
            return x + 1 if private.is_compiling() else x

        assert not private.is_compiling()
        assert torch.compile(traced, backend="eager", fullgraph=True)(torch.zeros(1)).item() == 1

    def test_a_check_of_tensors_remembers_the_dispatch_keys_it_is_made_under(self) -> None:
        private = runtime("torch_private")
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
        may_serve = runtime("torch_private").may_serve
        assert torch.compiler.disable(may_serve)() is False
        assert torch._disable_dynamo(may_serve)() is True, "torch keeps only itself out"
        assert may_serve() is True

    def test_dynamo_can_be_switched_off(self) -> None:
        import torch._dynamo.config as config

        may_serve = runtime("torch_private").may_serve
        with config.patch(disable=True):
            assert may_serve() is False
        assert may_serve() is True

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
        state = runtime("torch_private").StateGuard(guards.GlobalStateGuard().__getstate__())
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

        may_serve = runtime("torch_private").may_serve
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
        traced = runtime("torch_private").is_traced_symbolically
        torch.fx.symbolic_trace(lambda x: (seen.append(traced()), x)[1])
        assert [*seen, traced()] == [True, False]

    def test_both_calls_of_a_reentrant_checkpoint_are_seen(self) -> None:
        in_checkpoint = runtime("torch_private").in_checkpoint
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

    def test_looking_for_a_checkpoint_keeps_nothing_alive(self) -> None:
        in_checkpoint = runtime("torch_private").in_checkpoint

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
        after_optimizer_steps = runtime("torch_private").after_optimizer_steps
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
        default_device = runtime("torch_private").default_device

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
            assert {*_EXTENSIONS, *(flag for level in _LEVELS.values() for flag in level)} <= set(
                capabilities
            )
        assert isinstance(torch.version.git_version, str)


class TestTrees:
    """What verification looks into answers with."""

    def test_a_container_that_torch_knows_is_taken_apart_one_level_deep(self) -> None:
        assert pytrees.children({"a": [1, 2], "b": None}) == [("['a']", [1, 2]), ("['b']", None)]
        assert pytrees.children([(1,), 2]) == [("[0]", (1,)), ("[1]", 2)]
        values = torch.ones(2).max(dim=0)
        assert [child for _, child in pytrees.children(values) or ()] == list(values)
        assert pytrees.children([]) == []

    @pytest.mark.parametrize("leaf", [5, "text", None, torch.ones(1), object()])
    def test_anything_else_is_not(self, leaf: Any) -> None:
        assert pytrees.children(leaf) is None

    def test_tensors_that_wrap_others_say_which(self) -> None:
        from torch.testing._internal.two_tensor import TwoTensor

        found = pytrees.inner_tensors(TwoTensor(torch.ones(1), torch.ones(1)))
        assert found is not None
        assert found[0] == ["a", "b"]
        assert pytrees.inner_tensors(torch.ones(1)) is None

    def test_a_subclass_is_seen_without_what_it_overrides(self) -> None:
        class Loud(torch.Tensor):
            @classmethod
            def __torch_function__(cls, *_: Any, **__: Any) -> Any:
                raise AssertionError("called")

        loud = torch.Tensor._make_subclass(Loud, torch.ones(1))
        assert type(pytrees.plain(loud)) is torch.Tensor
        assert type(pytrees.plain(torch.nn.Parameter(torch.ones(1)))) is torch.Tensor
        assert pytrees.plain(torch.eye(2).to_sparse()).is_sparse

    def test_what_torchaos_tensors_say_is_in_their_attributes(self) -> None:
        weight = quantized()
        found = wrapping.flattened_by_names(weight)
        assert found is not None
        assert found.tensors["zero_point"]
        assert not found.tensors["act_pre_scale"]
        names, said = weight.__tensor_flatten__()
        assert names == ["qdata", "scale", "zero_point"]
        assert {**found.attributes, "dtype": torch.float32} == said

    @pytest.mark.parametrize(
        "changes",
        [
            {"__tensor_flatten__": lambda self: (["qdata"], {})},
            {"dtype": torch.float64},
            {"__torch_function__": classmethod(lambda cls, *_: None)},
            {"__metadata_guard__": classmethod(lambda cls, *_: True)},
        ],
        ids=lambda changes: next(iter(changes)),
    )
    def test_a_class_that_says_otherwise_is_asked(self, changes: dict[str, Any]) -> None:
        weight = quantized()
        weight.__class__ = type("Own", (type(weight),), changes)
        assert wrapping.flattened_by_names(weight) is None

    def test_so_is_one_that_overrides_what_torch_knows(self) -> None:
        weight = quantized()
        own = type("Own", (type(weight),), {})
        own._TORCH_FN_TABLE[own] = {torch.Tensor.dtype.__get__: lambda *_: torch.float64}
        weight.__class__ = own
        assert weight.dtype == torch.float64
        assert wrapping.flattened_by_names(weight) is None
        assert wrapping.flattened_by_names(torch.ones(1)) is None


def quantized() -> Any:
    layer = torch.nn.Sequential(torch.nn.Linear(8, 8))
    quantize_(layer, Int8DynamicActivationInt8WeightConfig())
    return layer[0].weight


def test_settings_are_the_same_in_each_process(tmp_path: Path) -> None:
    code = "from hatch_precompile.torch_internals import compiler_settings as found; print(found())"
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
