"""Those that make a program of a model."""

from __future__ import annotations

import io
import re

import torch

from tests.tools.guest import Guest, tool


@tool("torch.export: export, save, load, run")
def export(guest: Guest) -> None:
    batch = torch.export.Dim("batch", min=2, max=32)
    for strict in (False, True):
        program = torch.export.export(
            guest.classifier(), (guest.rows(),), dynamic_shapes={"x": {0: batch}}, strict=strict
        )
        guest.note("graph", program.graph_module.code)
        guest.note("signature", str(program.graph_signature))
        file = io.BytesIO()
        torch.export.save(program, file)
        file.seek(0)
        guest.note("output of the saved program", torch.export.load(file).module()(guest.rows(7)))
    pictures = torch.export.export(guest.pictures(), (guest.images(),))
    guest.note("graph", pictures.graph_module.code)
    guest.note("output", pictures.module()(guest.images()))


@tool("torch.export: run_decompositions, unflatten")
def decompositions(guest: Guest) -> None:
    with torch.no_grad():
        program = torch.export.export(guest.classifier(), (guest.rows(),)).run_decompositions()
        guest.note("graph", program.graph_module.code)
        unflattened = torch.export.unflatten(program)
        guest.note("names", [name for name, _ in unflattened.named_modules()])
        guest.note("output", unflattened(guest.rows()))


@tool("torch.onnx.export(dynamo=True), onnxruntime", "onnxscript", "onnxruntime")
def onnx(guest: Guest) -> None:
    _onnx(guest, dynamo=True)


@tool("torch.onnx.export(dynamo=False), onnxruntime", "onnx", "onnxruntime")
def onnx_by_tracing(guest: Guest) -> None:
    _onnx(guest, dynamo=False)


def _onnx(guest: Guest, *, dynamo: bool) -> None:
    import numpy as np
    import onnx
    import onnxruntime

    for name, model, given in (
        ("classifier", guest.classifier(), guest.rows()),
        ("pictures", guest.pictures(), guest.images()),
    ):
        path = f"{name}.onnx"
        torch.onnx.export(model, (given,), path, dynamo=dynamo, verbose=False)
        graph = onnx.load(path).graph
        guest.note("operators of the file", [node.op_type for node in graph.node])
        session = onnxruntime.InferenceSession(path)
        first, *others = session.get_inputs()  # what an export takes of arguments left out is one, too
        defaults = {each.name: np.array(1.0, dtype=each.type[7:-1]) for each in others}
        (found,) = session.run(None, {first.name: given.numpy(), **defaults})
        guest.note("output", torch.from_numpy(found))


@tool("torch.jit.trace: save, load, run")
def jit_trace(guest: Guest) -> None:
    with torch.no_grad():
        for model, given in ((guest.classifier(), guest.rows()), (guest.pictures(), guest.images())):
            traced = torch.jit.trace(model, (given,))
            guest.note("code", traced.code)
            file = io.BytesIO()
            torch.jit.save(traced, file)
            file.seek(0)
            guest.note("output of the saved program", torch.jit.load(file)(given))
        guest.note("code", torch.jit.trace(guest.package.normalize, (guest.rows(),)).code)
        guest.note("code", torch.jit.trace_module(guest.classifier(), {"forward": (guest.rows(),)}).code)


@tool("torch.jit.script, freeze, optimize_for_inference", suite=True)
def jit_script(guest: Guest) -> None:
    with torch.no_grad():
        for model, given in ((guest.classifier(), guest.rows()), (guest.pictures(), guest.images())):
            scripted = torch.jit.script(model)
            guest.note("code", scripted.code)
            guest.note("output", scripted(given))
            frozen = torch.jit.freeze(scripted)
            guest.note("operators", [node.kind() for node in frozen.graph.nodes()])
            guest.note("output", torch.jit.optimize_for_inference(frozen)(given))
        guest.note("code", torch.jit.script(guest.package.normalize).code)


@tool("torch.fx: symbolic_trace, Interpreter, ShapeProp")
def symbolic_trace(guest: Guest) -> None:
    from torch.fx.passes.shape_prop import ShapeProp

    with torch.no_grad():
        for model, given in ((guest.classifier(), guest.rows()), (guest.pictures(), guest.images())):
            graph = torch.fx.symbolic_trace(model)
            guest.note("code", graph.code)
            guest.note("output", graph(given))
            guest.note("output", torch.fx.Interpreter(graph).run(given))
            ShapeProp(graph).propagate(given)
            shapes = [getattr(node.meta.get("tensor_meta"), "shape", None) for node in graph.graph.nodes]
            guest.note("shapes", shapes)


@tool("make_fx")
def make_fx(guest: Guest) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    model = guest.classifier()

    def called(x: torch.Tensor) -> torch.Tensor:
        return model(x)

    for mode in ("real", "symbolic"):
        with torch.no_grad():
            graph = make_fx(called, tracing_mode=mode, _allow_non_fake_inputs=True)(guest.rows())
            guest.note(f"graph, {mode}", graph.code)
            guest.note("output", graph(guest.rows(4)))
    graph = make_fx(lambda x: torch.autograd.grad(model(x).sum(), list(model.parameters())))(guest.rows())
    guest.note("graph of the gradient", graph.code)


@tool("functorch.compile: aot_function")
def aot_function(guest: Guest) -> None:
    from functorch.compile import aot_module

    graphs = []

    def compiler(graph, inputs):  # type: ignore[no-untyped-def]
        graphs.append(graph.code)
        return graph

    model = guest.classifier()
    aot = aot_module(model, compiler)
    aot(guest.rows()).sum().backward()
    guest.note("graphs", graphs)
    guest.note_gradients(model)


@tool("torch.compile of what calls the model", suite=True)
def compile_around(guest: Guest) -> None:
    graphs = []

    def backend(graph, inputs):  # type: ignore[no-untyped-def]
        graphs.append(graph.code)
        return graph.forward

    model = guest.classifier()

    @torch.compile(backend=backend, fullgraph=True)
    def around(x: torch.Tensor) -> torch.Tensor:
        return model(x * 2) + guest.package.normalize(x)[:, :4]

    with torch.no_grad():
        guest.note("output", around(guest.rows()))
    guest.note("output", around(guest.rows()))
    guest.note("graphs", graphs)


@tool("torch.compile of the model, aot_eager")
def compile_model(guest: Guest) -> None:
    model = guest.classifier()
    compiled = torch.compile(model, backend="aot_eager")
    with torch.no_grad():
        guest.note("output", compiled(guest.rows()))
        guest.note("output of a miss", compiled(guest.rows().repeat(40, 1)))
        guest.note(
            "output in place of forward", torch.compile(guest.pictures(), backend="aot_eager")(guest.images())
        )
    compiled(guest.rows()).sum().backward()
    guest.note_gradients(model)
    guest.note("names", list(compiled.state_dict()))
    model.compile(backend="aot_eager")
    guest.note("output", model(guest.rows(9)))


@tool("torch._dynamo.explain", known="no graph")
def explain(guest: Guest) -> None:
    torch._dynamo.reset()
    said = torch._dynamo.explain(guest.classifier())(guest.rows())
    guest.note("graphs", said.graph_count)
    guest.note("breaks", said.graph_break_count)


@tool("torch.package")
def package(guest: Guest) -> None:
    from torch.package import PackageExporter, PackageImporter

    with PackageExporter("model.pt") as exporter:
        exporter.intern("workshop.model")
        exporter.extern(["torch.**"])
        exporter.save_pickle("model", "model.pkl", guest.classifier())
    importer = PackageImporter("model.pt")
    model = importer.load_pickle("model", "model.pkl")
    guest.note("class", re.sub(r"\d+", "0", f"{type(model).__module__}.{type(model).__name__}"))
    with torch.no_grad():
        guest.note("output", model(guest.rows()))
    guest.note("files", sorted(str(importer.file_structure()).split()))
