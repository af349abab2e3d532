"""What a capture leans on in inductor and AOTAutograd, and what layers are made with."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import platform
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
import torch._dynamo.config
import torch._functorch.config
import torch._inductor.config
import torch._inductor.decomposition
from torch._functorch._aot_autograd import runtime_wrappers, schemas
from torch.fx.experimental.proxy_tensor import make_fx

from hatch_precompile import inductor
from hatch_precompile.backends.x86_64 import vectors
from hatch_precompile.backends.x86_64.levels import EXTENSIONS, needed
from hatch_precompile.config.options import FIXED, check_options
from hatch_precompile.errors import BuildError, ConfigError
from hatch_precompile.inductor import libraries, operators, unchecked_calls, vector_isa
from hatch_precompile.inductor.deterministic_names import arrays_known_again
from hatch_precompile.inductor.integer_divisions import divisions_are_checked, unchecked_division
from hatch_precompile.inductor.parallel_checks import THROWING_HELPERS
from hatch_precompile.torch_versions import way
from tests.support.hardware import a_variant


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


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
        with libraries.libraries_made([].append, "somewhere") as made:
            assert vars(CppWrapperCodeCache) != before
        assert made == []
        assert vars(CppWrapperCodeCache) == before

    def test_the_line_that_enters_a_library_is_a_class_attribute_that_is_put_back(self) -> None:
        from torch._inductor.codecache import CppWrapperCodeCache

        line = CppWrapperCodeCache.call_entry_function
        assert line == "return inductor_entry_cpp({});"
        with libraries.libraries_made([].append, "somewhere"):
            assert CppWrapperCodeCache.call_entry_function.endswith(line)
            assert "precompiled::bind" in CppWrapperCodeCache.call_entry_function
        assert CppWrapperCodeCache.call_entry_function == line

    def test_what_scatters_or_puts_ends_with_a_call_that_may_not_be_looked_at(self) -> None:
        from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu

        before = dict(vars(CppWrapperCpu))
        for name in unchecked_calls._WRITING:
            last = inspect.getsource(vars(CppWrapperCpu)[name]).rstrip().splitlines()[-1]
            assert last.strip() in (
                "self.writeline(line)",
                "self.writeline(self.wrap_kernel_call(kernel, args))",
                # Since 2.14
                'self.writeline(f"AOTI_TORCH_ERROR_CODE_CHECK({line});")',
                "self.writeline(f\"AOTI_TORCH_ERROR_CODE_CHECK({kernel}({', '.join(args)}));\")",
            )
        with unchecked_calls.calls_checked():
            assert vars(CppWrapperCpu) != before
            wrapper: Any = CppWrapperCpu.__new__(CppWrapperCpu)
            lines: list[str] = []
            wrapper.writeline, wrapper.ending = lines.append, ";"
            wrapper._generate_temporary_array_pointer = lambda kind, each: "array"
            wrapper._generate_index_put_fallback("aoti_torch_put", "x", ["i"], "v", "0")
        assert lines == ["AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_put(x, x, array, 1, v, 0));"]
        assert vars(CppWrapperCpu) == before

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
        of_divisions = set(THROWING_HELPERS) if divisions_are_checked() else set()
        assert names - internal - shuffles - {"TORCH_CHECK", "throw"} == of_divisions

    def test_a_division_by_zero_is_noted_in_lines_that_we_take_out(self) -> None:
        from torch._inductor.codegen import cpp

        source = inspect.getsource(cpp.KernelGroup.codegen_group)
        lines = [line for line in source.splitlines() if "integer_div" in line]
        assert len(lines) == (4 if divisions_are_checked() else 0)
        assert all("inductor_cpu_integer_div_error" in line for line in lines)

    @pytest.mark.parametrize(
        ("divide", "dtype", "may_crash"),
        [
            (lambda x, y: x // y, torch.int64, True),
            (lambda x, y: x % y, torch.int32, True),
            (lambda x, y: torch.div(x, y, rounding_mode="trunc"), torch.int8, True),
            (torch.fmod, torch.int64, True),
            (lambda x, y: x // 3 + y % -2, torch.int64, False),
            (lambda x, y: x / y, torch.int64, False),
            (lambda x, y: x // y, torch.float32, False),
        ],
    )
    def test_a_division_that_may_end_the_process_is_refused(
        self, divide: Any, dtype: torch.dtype, may_crash: bool
    ) -> None:
        decompositions = torch._inductor.decomposition.select_decomp_table()
        ones = torch.ones(3, dtype=dtype)
        trace = make_fx(divide, tracing_mode="fake", decomposition_table=decompositions)
        why = unchecked_division(trace(ones, ones).graph)
        if divisions_are_checked() or not may_crash:
            assert why == ""
        else:
            assert why.startswith("it divides integers by others")
            assert "so that a zero would end the process; divide by a number" in why

    def test_calls_of_operators_go_through_one_method(self) -> None:
        from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu

        names = ["buf_name", "python_kernel_name", "op_overload", "raw_args", "output_args"]
        call = CppWrapperCpu.generate_fallback_kernel_with_runtime_lookup_python
        assert parameters(call)[:-1] == ["self", *names]
        if way("calls of operators that C++ has no function for") == "a method for them":
            method = parameters(CppWrapperCpu._generate_fallback_kernel_jit)
            assert method == ["self", *names[:2], "get_args", *names[2:], "outputs"]
        else:
            assert isinstance(vars(CppWrapperCpu)["_compatible_with_stableivalue"], staticmethod)
            assert "_compatible_with_stableivalue(op_overload)" in inspect.getsource(
                CppWrapperCpu.generate_fallback_kernel_with_runtime_lookup
            )

    def test_a_check_asks_what_made_a_tensor_for_its_name(self) -> None:
        from torch._inductor import ir

        assert parameters(ir.ExternKernel.get_op_name) == ["self"]
        assert "get_op_name()" in inspect.getsource(ir.ExternKernel.codegen_size_asserts)

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

    @pytest.mark.parametrize("name", ["cpp.dynamic_threads", "cpp_wrapper"])
    def test_a_variants_settings_exist(self, name: str) -> None:
        owner: Any = torch._inductor.config
        for part in name.split("."):
            owner = getattr(owner, part)

    def test_what_the_build_sets_itself_exists_and_no_author_may_set(self) -> None:
        before = torch._inductor.config.save_config_portable()
        with inductor.capture_settings({}, graphs_expected=9):
            after = torch._inductor.config.save_config_portable()
        changed = {name for name in after if after[name] != before[name]}
        assert "cpp_wrapper" in changed
        for name in changed | {"cpp.march", "cpp.simdlen", "freezing", "assert_indirect_indexing"}:
            with pytest.raises(ConfigError, match="that the build makes itself"):
                check_options({name: None}, "options")
        for name in FIXED:
            owner: Any = torch._inductor.config
            if name == "cpp.march" and way("the architecture that is compiled for") != "a setting":
                continue
            for part in filter(None, name.split(".")):
                assert hasattr(owner, part), name
                owner = getattr(owner, part)

    def test_the_architecture_may_be_followed_by_another_flag(self) -> None:
        from torch._inductor import cpp_builder

        variant = a_variant("native", (), {"cpp.march": "x86-64-v3 -mtune=native", "cpp_wrapper": True})
        with vector_isa.with_settings_of(variant):
            assert torch._inductor.config.cpp_wrapper is True
            command = cpp_builder.CppBuilder("graph", ["graph.cpp"], cpp_builder.CppTorchOptions())
            assert "-march=x86-64-v3 -mtune=native" in command.get_command_line()

    def test_an_architecture_that_cannot_be_asked_for_is_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where it is no setting, as in torch 2.11."""
        from torch._inductor import cpp_builder

        monkeypatch.setattr(cpp_builder, "_get_optimization_cflags", lambda *_: (["O3", "march=native"], []))
        with vector_isa._architecture("x86-64-v3"):
            assert cpp_builder._get_optimization_cflags("g++") == (["O3", "march=x86-64-v3"], [])
        monkeypatch.setattr(cpp_builder, "_get_optimization_cflags", lambda *_: (["O3"], []))
        with (
            vector_isa._architecture("x86-64-v3"),
            pytest.raises(BuildError, match="no flag for the architecture"),
        ):
            cpp_builder._get_optimization_cflags("g++")

    @pytest.mark.skipif(platform.machine() != "x86_64", reason="the vectors of x86-64")
    @pytest.mark.parametrize(
        ("level", "extensions", "picked"),
        [
            ("x86-64-v2", (), None),
            ("x86-64-v3", (), ("VecAVX2", "-mavx2 -mfma -mf16c")),
            ("x86-64-v4", (), ("VecAVX512", "-mavx512f -mavx512dq -mavx512vl -mavx512bw -mfma")),
            ("x86-64-v4", EXTENSIONS, ("VecAMX", "-mavx512bf16 -mamx-tile")),
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
        with vectors.vectors_within((*needed(level), *extensions)):
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
            with vectors.vectors_within((*needed(level), *extensions)):
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
        given = parameters(runtime_wrappers.AOTDispatchAutograd.post_compile)
        names = {"compiled_fw_func", "compiled_bw_func", "lazy_backward_info", "aot_config", "fw_metadata"}
        names.add("try_save_cache_entry")
        if way("what is put around a graph with gradients") == "a specification":
            spec = dataclasses.fields(runtime_wrappers.AOTDispatchAutogradCompileSpec)
            if torch.__version__ >= (2, 13):
                names.add("bw_compiler")
            assert names <= {field.name for field in spec}
            assert given == ["spec"]
        else:
            rest = {"maybe_subclass_meta", "num_symints_saved_for_bw_", "backward_state_indices"}
            assert set(given) == names | rest | {"disable_amp", "indices_of_inps_to_detach"}

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
        names |= {"subclass_inp_meta", "subclass_fw_graph_out_meta"}
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
        kinds = {name for name in vars(schemas) if name in ("PlainTensorMeta", known.__name__)}
        assert len(kinds) == 2 and not hasattr(schemas.PlainTensorMeta, "attrs")

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
    """What layers (backends/x86_64/layers/blas_choice.py) and fixed weights
    (inductor/prepacking/weights.py) are made with."""

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
        assert "for name, buf in self.get_graph_inputs().items():" in written


def test_an_array_of_sizes_is_known_again_by_where_it_was_written() -> None:
    from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu

    class Writer:
        def __init__(self) -> None:
            self.lines = list[str]()

        def writeline(self, line: str) -> None:
            self.lines.append(line)

    wrapper = CppWrapperCpu.__new__(CppWrapperCpu)
    wrapper.int_array_id, wrapper.declared_int_array_vars = itertools.count(), set()
    wrapper.codegen_int_array_var_cache = {}
    wrapper._int_array_writeline_targets = []  # since torch 2.15
    first, second = Writer(), Writer()
    with arrays_known_again():
        # Methods that are let go of often have one address, and those that are kept have others.
        one, other = (wrapper.codegen_int_array_var("{1L}", each.writeline) for each in (first, second))
        kept = [first.writeline for _ in range(3)]
        again = [wrapper.codegen_int_array_var("{1L}", method) for method in kept]
    assert one != other and set(again) == {one}
    assert len(first.lines) == len(second.lines) == 1
