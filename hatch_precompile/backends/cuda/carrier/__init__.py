"""Inductor's C++ wrapper for CUDA, made to be carried: its kernels lie in the library, which serves every
device of a process and is linked with nothing of CUDA's but torch.

By torch's own ways to extend inductor: a class of wrappers for a kind of device, and what its device
functions are called. Seen in torch 2.11.0 and 2.13.0 (torch/_inductor/codegen/cpp_wrapper_gpu.py and
cpp_wrapper_cpu.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch._inductor.codecache import CudaKernelParamCache
from torch._inductor.codegen import common
from torch._inductor.codegen.cpp_wrapper_gpu import CppWrapperGpu, DeferredTritonCallWrapper
from torch._inductor.codegen.cuda.device_op_overrides import CUDADeviceOpOverrides
from torch._inductor.codegen.wrapper import EnterDeviceContextManagerLine
from torch._inductor.virtualized import V

from hatch_precompile.backends.cuda.headers import include_folders

__all__ = ["NotCarried", "wrapped_to_be_carried"]

_HERE = "device_here_"
"""What the index of the device is called in the source, which inductor writes as a number."""


class NotCarried(Exception):
    """A graph that the library would not be right for."""


class _Functions(CUDADeviceOpOverrides):
    def kernel_driver(self) -> str:
        return files(__package__).joinpath("kernels.h").read_text("utf-8")


class _Call(DeferredTritonCallWrapper):
    """The function that launches one kernel, whose image is in the library."""

    def generate(self, wrapper: Any) -> None:
        kept = CudaKernelParamCache.get(self.kernel_name)
        if kept is None:
            raise NotCarried(f"the kernel {self.kernel_name} was not compiled")
        if any(kept.get(kind) for kind in ("global_scratch", "profile_scratch")):
            raise NotCarried(f"the kernel {self.kernel_name} wants memory of its own beside its arguments")
        if kept["triton_meta"].get("launch_cooperative_grid"):
            raise NotCarried(f"the blocks of the kernel {self.kernel_name} wait for each other")
        image = f"precompiled_image_{self.kernel_name}"
        name = kept["mangled_name"]
        wrapper.prefix.splice(f"""
            __asm__(".pushsection .rodata\\n.balign 64\\n{image}:\\n"
                    ".incbin \\"{kept["cubin_path"]}\\"\\n.popsection");
            extern "C" __attribute__((visibility("hidden"))) const char {image}[];
            static precompiled::Kernel {self.kernel_name}_kernel({image}, "{name}", {kept["shared_mem"]});
        """)
        super().generate(wrapper)

    def generate_load_kernel(self, prefix: Any, kernel_var_name: str, params: Any) -> None:
        prefix.writeline(f"CUfunction here_ = {self.kernel_name}_kernel.on(device_idx_);")

    def generate_launch_kernel(self, prefix: Any, wrapper: Any, kernel_var_name: str, params: Any) -> None:
        super().generate_launch_kernel(prefix, wrapper, "here_", params)


class _EnterDevice(EnterDeviceContextManagerLine):
    def codegen(self, code: Any) -> None:
        if self.last_seen_device_guard_index is None:
            code.writeline(f"AOTICudaGuard device_guard({_HERE});")
        elif self.last_seen_device_guard_index != self.device_idx:
            raise NotCarried("it uses two GPUs")


class Wrapper(CppWrapperGpu):
    """The calling code of one graph."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []
        self.devices: set[int] = set()

    @staticmethod
    def create(
        is_subgraph: bool, subgraph_name: Any, parent_wrapper: Any, partition_signatures: Any = None
    ) -> Wrapper:
        return Wrapper()

    def writeline(self, line: Any) -> None:
        if type(line) is EnterDeviceContextManagerLine:
            line = _EnterDevice(line.device_idx, line.last_seen_device_guard_index)
        super().writeline(line)

    def codegen_device(self, device: torch.device) -> str:
        text: str = super().codegen_device(device)
        if device.type != "cuda":
            return text
        self.devices.add(device.index or 0)
        if len(self.devices) > 1:
            raise NotCarried("it uses two GPUs")
        return f"{text.partition(',')[0]}, {_HERE}"

    def write_get_raw_stream(self, device_idx: int, graph_name: str) -> str:
        asked = f"aoti_torch_get_current_cuda_stream({_HERE}, (void**)&stream_here_)"
        self.writeline("cudaStream_t stream_here_;")
        self.writeline(f"AOTI_TORCH_ERROR_CODE_CHECK({asked});")
        return "stream_here_"

    def codegen_inputs(self) -> None:
        on_device = [name for name, value in V.graph.graph_inputs.items() if _is_on_a_gpu(value)]
        device = f"device_of({on_device[0]})" if on_device else "current_device()"
        self.prefix.writeline(f"[[maybe_unused]] const int32_t {_HERE} = precompiled::{device};")
        for name in on_device:
            if name not in V.graph.unaligned_buffers:
                self.prefix.writeline(f"precompiled::Aligned {name}_aligned({name});")
                if name in V.graph.mutated_inputs:
                    self.written.append(name)
        super().codegen_inputs()

    def finalize_prefix(self) -> None:
        names = [field.name for field in dataclasses.fields(DeferredTritonCallWrapper) if field.init]
        calls: dict[str, Any] = self._triton_call_wrappers
        for key, call in calls.items():
            calls[key] = _Call(**{name: getattr(call, name) for name in names})
        super().finalize_prefix()

    def generate_return(self, output_refs: list[str]) -> None:
        self.wrapper_call.writeline("PRECOMPILED_COPY_BACK")  # what is written is known later
        super().generate_return(output_refs)

    def generate(self, is_inference: bool) -> Any:
        """The edits are made in the finished text: inductor numbers arrays by what writes its lines."""
        code, kernels = super().generate(is_inference)
        text = re.sub(
            r"(?m)^(\s*call_\w+\(.*), \d+, stream_here_\);", rf"\1, {_HERE}, stream_here_);", code.value
        )
        back = " ".join(f"{name}_aligned.copy_back();" for name in self.written)
        code.value = text.replace("PRECOMPILED_COPY_BACK", back)
        if left := re.search(r"(?m)^.*(?:device_type_cuda, \d|, \d+, stream_here_).*$", code.value):
            raise NotCarried(f"it names a device by its number: {left[0].strip()}")
        return code, kernels


def _is_on_a_gpu(value: Any) -> bool:
    device = value.get_device() if hasattr(value, "get_device") else None
    return device is not None and device.type == "cuda"


@contextlib.contextmanager
def wrapped_to_be_carried() -> Iterator[None]:
    """Inductor writes and compiles such wrappers while the block runs."""
    from torch._inductor import cpp_builder

    common.init_backend_registration()
    common.get_device_op_overrides("cuda")  # which fills the table below
    codegen, functions = common.device_codegens["cuda"], common.device_op_overrides_dict["cuda"]
    options = cpp_builder.get_cpp_torch_device_options
    common.device_codegens["cuda"] = dataclasses.replace(codegen, cpp_wrapper_codegen=Wrapper)
    common.device_op_overrides_dict["cuda"] = _Functions()

    def options_without_toolkit(device_type: str, *args: Any, **kwargs: Any) -> Any:
        return _options() if device_type == "cuda" else options(device_type, *args, **kwargs)

    cpp_builder.get_cpp_torch_device_options = options_without_toolkit
    try:
        yield
    finally:
        cpp_builder.get_cpp_torch_device_options = options
        common.device_codegens["cuda"], common.device_op_overrides_dict["cuda"] = codegen, functions


def _options() -> tuple[list[str], ...]:
    """What a wrapper is compiled and linked with: definitions, folders of headers, flags for the compiler and
    the linker, folders of libraries, libraries, other arguments."""
    from torch.utils import cpp_extension

    *_, triton = include_folders()
    empty = Path(str(files(__package__).joinpath("empty")))
    includes = [*cpp_extension.include_paths("cpu"), str(empty), str(triton)]
    return [" USE_CUDA"], includes, [], [], cpp_extension.library_paths("cpu"), ["torch_cuda"], []
