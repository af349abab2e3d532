"""What would make a call hit, for each kind of check that can fail. Loaded with explanations only."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["remedy"]

_MODES = {
    "no_grad": "make the call under torch.no_grad()",
    "inference": "make the call, and its inputs, under torch.inference_mode()",
    "train": "make the call with gradients on",
}
_REBUILD = "or rebuild the wheel with a sample that has it"

# In the words of a reason, the first that fits. `{...}` are groups of the pattern.
_BY_REASON: tuple[tuple[str, str], ...] = (
    (r"is \S+; needed: .*\.training is (?P<value>True|False)", "{train}"),
    (r"has dtype \S+, the entry needs (?P<dtype>\S+)", f"convert it to torch.{{dtype}}, {_REBUILD}"),
    (r"is a \S+, the entry needs a (?P<cls>\S+)", "pass a {cls}"),
    (r"is \d+-dimensional, the entry needs", f"pass one with as many dimensions, {_REBUILD}"),
    (
        r"(?P<name>[\w.]+) has size \d+ in dimension (?P<dimension>\d+), the entry needs",
        f"pass one of that size, {_REBUILD} or with dynamic-shapes.{{name}}.{{dimension}}",
    ),
    (r"is the same tensor as", f"pass a copy, {_REBUILD}"),
    (r"requires_grad", "set requires_grad as it was at the build"),
    (r"dispatch key", "pass a plain tensor, made in the mode that the entry is for"),
    (r"dtype mismatch", f"convert it, {_REBUILD}"),
    (r"(?:size|stride|rank) mismatch", f"pass one of that shape and those strides, {_REBUILD}"),
    (r"device", f"move it to that device, {_REBUILD}"),
)
# In the check as the guard function has it; where the reason does not tell.
_BY_CHECK: tuple[tuple[str, str], ...] = (
    (r"\Aenvironment\(", f"set it as it was, {_REBUILD}"),
    (r"\Amodule_hooks\(", f"remove them, {_REBUILD}"),
    (r"may_serve\(\)", "make the call outside of it"),
    (r"inference_mode\(\) is", "{mode}"),
    (r"function_mode_depth\(\)", "make the call outside of the torch function mode"),
    (r"saved_tensors_hooks", "make the call without hooks on saved tensors"),
    (r"forward_ad", "make the call outside of forward-mode differentiation"),
    (r"default_device", "set torch's default device as it was at the build"),
    (r"marks_agree", "pass a tensor without marks of mark_dynamic and the like"),
    (r"\.size\(\)", f"pass a size in that range, {_REBUILD} or with another dynamic-shapes"),
    (
        r"type\(v\d+\) is \w+\Z",
        "pass an object of exactly that class; code compiled for a class serves no other",
    ),
    (
        r"\Anot hasattr|\.__dict__|\bin v\d+|len\(",
        "leave the object's attributes and contents as at the build",
    ),
    (r" == | is ", f"pass that value, {_REBUILD}"),
)


def remedy(check: str, reason: str, modes: Sequence[str]) -> str:
    """What whoever made the call, or whoever built the wheel, can do.

    check: the line of the guard function that failed; reason: the same in words; modes: the entrypoint's.
    """
    mode = ", or ".join(_MODES[mode] for mode in modes)
    if check.startswith("state.check()"):
        if "grad_mode" in reason:
            return mode
        return "set torch's state as it was at the build"
    for patterns, text in ((_BY_REASON, reason), (_BY_CHECK, check)):
        for pattern, words in patterns:
            found = re.search(pattern, text)
            if found is not None:
                groups = found.groupdict()
                train = "call train()" if groups.get("value") == "True" else "call eval()"
                return words.format(**groups | {"mode": mode, "train": f"{train} on the model"})
    return "rebuild the wheel with a sample like this call"
