"""What AOTAutograd puts around a compiled graph."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from hatch_precompile.records import GraphRecord
from hatch_precompile.torch_versions import way

__all__ = ["Around", "Wrappers"]

# Of a file, in a line of a traceback.
_FOLDER = re.compile(r'(?<=File ")[^"\n]*/(?=[^"/\n]+", line )')


# Wrappers that do nothing to a graph of which this is not so.
_FOR_SOME: dict[str, Callable[[Any], bool]] = {
    "FunctionalizedRngRuntimeWrapper": lambda meta: bool(meta.is_rng_op_functionalized),
    "EffectTokensWrapper": lambda meta: bool(meta.tokens),
}


@dataclasses.dataclass(frozen=True)
class Around:
    """What runs around a graph's library.

    record: as the runtime does it itself; wrapping: torch's own wrappers, pickled, where it cannot
    changed: the inputs whose memory a call writes to
    """

    record: GraphRecord
    wrapping: bytes
    changed: frozenset[int]


class Wrappers:
    """Sees which of AOTAutograd's wrappers go around a graph, and with what.

    Where they amount to what the runtime does itself the graph is native. Else they are pickled, in
    their order, to be put around the graph again by torch's own code in the target process.

    give_up: told why the graph cannot be carried
    """

    _IDLE = (
        ("AOTDedupeWrapper", "the same tensor is passed to it twice"),
        ("AOTSyntheticBaseWrapper", "its inputs share memory"),
        ("AOTDispatchSubclassWrapper", "it uses tensor subclasses"),
        ("FunctionalizedRngRuntimeWrapper", "its random numbers are functionalized"),
        ("EffectTokensWrapper", "it carries effect tokens"),
    )

    def __init__(self, give_up: Callable[[str], None]) -> None:
        self.give_up = give_up
        self.record = GraphRecord()
        self.changed: set[int] = set()
        self.wants_backward = False
        self.steps: list[tuple[str, dict[str, Any], Any]] = []
        self.config: Any = None

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        import torch._functorch.config as functorch_config
        from torch._functorch._aot_autograd import runtime_wrappers as module

        with contextlib.ExitStack() as stack:
            for name, reason in (*self._IDLE, ("RuntimeWrapper", "")):
                cls = getattr(module, name)
                stack.enter_context(patch.object(cls, "post_compile", self._watched(cls, reason)))
            cls = module.AOTDispatchAutograd
            watched = staticmethod(self._watched_autograd(cls))
            stack.enter_context(patch.object(cls, "post_compile", watched))
            # A backward that were compiled at its first call would be compiled on the target.
            stack.enter_context(functorch_config.patch(force_non_lazy_backward_lowering=True))
            yield

    def _watched(self, cls: Any, reason: str) -> Callable[..., Any]:
        post_compile = cls.post_compile

        def watched(wrapper: Any, compiled_fn: Any, aot_config: Any, **kwargs: Any) -> Any:
            result = post_compile(wrapper, compiled_fn, aot_config, **kwargs)
            meta = kwargs["runtime_metadata"]
            self._read_changes(meta)
            if cls.__name__ in _FOR_SOME and not _FOR_SOME[cls.__name__](meta):
                return compiled_fn  # torch 2.11 puts it around every graph
            if result is not compiled_fn:
                if cls.__name__ == "AOTDispatchSubclassWrapper" and (inner := _inner_tensors(meta)):
                    self.record = replace(self.record, unwrapped_inputs=inner)
                elif reason:
                    self._need(reason)
                else:
                    self._read_metadata(meta, wrapper)
                settings = {spec.name: getattr(wrapper, spec.name) for spec in dataclasses.fields(wrapper)}
                self.steps.append((cls.__name__, settings, meta))
                self.config = aot_config
            return result

        return watched

    def _watched_autograd(self, cls: Any) -> Callable[..., Any]:
        """Training: one step, which puts a RuntimeWrapper around itself."""
        post_compile = cls.post_compile
        names = (
            "maybe_subclass_meta",
            "num_symints_saved_for_bw",
            "backward_state_indices",
            "disable_amp",
            "indices_of_inps_to_detach",
        )
        given_one_by_one = way("what is put around a graph with gradients") == "arguments"
        signature = inspect.signature(post_compile)

        def watched(*args: Any, **kwargs: Any) -> Any:
            before = len(self.steps)
            result = post_compile(*args, **kwargs)
            del self.steps[before:]
            given = signature.bind(*args, **kwargs).arguments
            if given_one_by_one:
                spec = {name.removesuffix("_"): value for name, value in given.items()}
            else:
                spec = vars(given["spec"])
            self._read_changes(spec["fw_metadata"])
            self.record = replace(self.record, why_wrapped="it computes gradients")
            self.wants_backward |= spec["lazy_backward_info"] is not None
            self.steps.append((cls.__name__, {name: spec[name] for name in names}, spec["fw_metadata"]))
            self.config = spec["aot_config"]
            return result

        return watched

    def _need(self, reason: str) -> None:
        """Note that the graph needs torch's own wrappers. The first reason that is given is kept."""
        self.record = replace(self.record, why_wrapped=self.record.why_wrapped or reason)

    def _read_changes(self, meta: Any) -> None:
        if meta is None:
            return
        self.changed.update(i for i, info in enumerate(meta.input_info) if info.mutates_data)
        # Those in mutated_inp_runtime_indices are written to by a wrapper, after the library has run.
        inside = set(range(len(meta.input_info))) - set(meta.mutated_inp_runtime_indices)
        if any(meta.input_info[i].mutates_data or meta.input_info[i].mutates_metadata for i in inside):
            self.record = replace(self.record, changes_inputs=True)

    def _read_metadata(self, meta: Any, wrapper: Any) -> None:
        from torch._functorch._aot_autograd.schemas import OutputType

        written = list(meta.mutated_graph_handled_indices_seen_by_autograd)
        copied = list(meta.mutated_inp_runtime_indices)
        inputs, views, detached = dict[int, int](), dict[int, int](), dict[int, bool]()
        reasons = {
            "it changes an input's shape or storage": any(
                info.mutates_metadata or info.mutates_storage_metadata for info in meta.input_info
            ),
            "it returns views that share a hidden base": bool(meta.num_intermediate_bases),
            "it changes the grad mode": meta.grad_enabled_mutation is not None,
        }
        plain = (OutputType.non_alias, OutputType.unsafe_view_alias, OutputType.custom_function_view)
        for index, info in enumerate(meta.output_info):
            if info.output_type is OutputType.is_input:
                inputs[index] = info.base_idx
            elif info.output_type is OutputType.alias_of_input:
                views[index] = info.base_idx
                steps = _steps(info.view_meta_sequence)
                if _DETACH in steps:
                    detached[index] = steps[-1] != _DETACH
                if not _BITS.isdisjoint(steps):
                    reasons["it returns views whose numbers torch has still to conjugate or negate"] = True
            elif info.output_type not in plain:
                reasons["it returns tensors that share memory"] = True
        self.record = replace(
            self.record,
            disable_autocast=wrapper.disable_amp,
            written_inputs=written,
            copied_inputs=copied,
            input_outputs=inputs,
            view_outputs=views,
            detached_outputs=detached,
        )
        changed = {*written, *copied, *views.values()}
        reasons["it changes, or returns a view of, a tensor subclass"] = not changed.isdisjoint(
            self.record.unwrapped_inputs
        )
        for reason, present in reasons.items():
            if present:
                self._need(reason)

    def finish(self, *, has_backward: bool) -> Around:
        """What was seen. has_backward: whether the graph of the gradients was compiled."""
        if self.wants_backward and not has_backward:
            self.give_up("its backward was not compiled")
        elif self.record.why_wrapped:
            hidden = any(name == "AOTDispatchSubclassWrapper" for name, *_ in self.steps)
            # These unwrap inputs themselves.
            self.record = replace(self.record, unwrapped_inputs={}, hidden_weights=hidden)
            return Around(self.record, self._pickled(), frozenset(self.changed))
        return Around(self.record, b"", frozenset(self.changed))

    def _pickled(self) -> bytes:
        """AOTAutograd's configuration at run time, and the steps: of each wrapper the name of its class, the
        values of its fields, and metadata."""
        for _, settings, meta in self.steps:
            settings.pop("fw_only", None)
            if getattr(meta, "bw_donated_idxs", ()) is None:
                # None were asked for. A backward that keeps the graph takes None for some (torch 2.13).
                meta.bw_donated_idxs = []
            traces = getattr(meta, "tangent_source_stack_traces", None)
            if traces:  # which have the build machine's folders
                meta.tangent_source_stack_traces = [trace and _FOLDER.sub("", trace) for trace in traces]
        keep = ("num_params_buffers", "aot_id", "keep_inference_input_mutations", "dynamic_shapes")
        config = {name: getattr(self.config, name) for name in keep}
        try:
            return pickle.dumps((config, self.steps), protocol=5)
        except Exception as error:
            self.give_up(f"{self.record.why_wrapped}, and {error}")
            return b""


# Torch's name for the step `detach()`, after which autograd sees no view.
_DETACH = "detach_ViewMeta"

# Steps that set a bit of a tensor and leave its memory as it is. A library's outputs have no such bit.
_BITS = {"_conj_ViewMeta", "_neg_view_ViewMeta"}


def _steps(sequence: Any) -> list[str]:
    """The names of the steps by which a view is made of an input."""
    return [type(step).__name__ for step in sequence.sequence] if sequence is not None else []


def _inner_tensors(meta: Any) -> dict[int, list[list[str]]] | None:
    """Of each input that is a tensor subclass, the ways to the tensors it wraps, in the order in which a
    graph takes them; None where taking those in its place is not all that the subclasses need."""
    from torch._functorch._aot_autograd.schemas import PlainTensorMeta

    # Inputs that are still on their way from another process; torch 2.11 knows none.
    if getattr(meta, "act_input_indices", None) or not all(
        type(out) is PlainTensorMeta for out in meta.subclass_fw_graph_out_meta
    ):
        return None
    found: dict[int, list[list[str]]] = {}

    def add(each: Any, number: int, way: list[str]) -> bool:
        if type(each) is PlainTensorMeta:
            if way:
                found.setdefault(number, []).append(way)
            return True
        # Symbolic sizes, too, would be inputs of the graph.
        if not all(type(size) is int for size in (*each.outer_size, *each.outer_stride)):
            return False
        return all(
            hasattr(inner, "attrs") or type(inner) is PlainTensorMeta for inner in each.attrs.values()
        ) and all(add(inner, number, [*way, name]) for name, inner in each.attrs.items())

    whole = all(add(each, number, []) for number, each in enumerate(meta.subclass_inp_meta))
    return found if whole else None
