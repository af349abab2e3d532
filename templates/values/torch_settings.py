"""What objects of torch's are set to, in words: what tells one from another that stands in its place."""

from __future__ import annotations

from typing import Any

__all__ = ["settings_of"]

# Of torch's context managers, which dynamo knows by identity, what tells one from another.
_SETTINGS = {
    "autocast": ("device", "fast_dtype", "_enabled", "_cache_enabled"),
    "set_grad_enabled": ("mode",),
    "inference_mode": ("mode",),
}


def settings_of(value: Any) -> str:
    """What one of torch's objects is set to, in words; "" where that is not known. A member of an enumeration
    in C++ is one."""
    cls = type(value)
    if type(cls).__name__ == "pybind11_type" and hasattr(cls, "__members__"):
        return f"a {cls.__module__}.{cls.__qualname__} {value.name}"
    for base in cls.__mro__:
        if base.__name__ in _SETTINGS and base.__module__.startswith("torch."):
            return f"{base.__name__} {[str(getattr(value, name)) for name in _SETTINGS[base.__name__]]}"
    return ""


WHOLE = True
