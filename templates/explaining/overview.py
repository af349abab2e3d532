"""What is installed in this process, and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import Unfit, unfit
from ..loading.manifest import cell_name

if TYPE_CHECKING:
    from ..installation import Installation

__all__ = ["status_of"]


def status_of(installation: Installation) -> dict[str, Any]:
    """As `_precompiled.status()` gives it."""
    reason = installation.reason
    if installation.entrypoints and installation.variant is None and not reason:
        try:
            installation.variant = installation.variant_here()
        except Unfit as error:
            reason = str(error)
        except ImportError as error:  # a folder of the package is gone
            reason = str(unfit(error))
    entrypoints = {}
    for record in installation.manifest.get("entrypoints", ()):
        name = record["name"]
        active = installation.entrypoints.get(name)
        frames = active.frames if active is not None else []
        entrypoints[name] = {
            "target": record["target"],
            "active": active is not None,
            "entries": sum(
                len(installation.manifest["frames"][number]["entries"]) for number in record["frames"]
            ),
            "loaded": sum(entry.ready for frame in frames for entry in frame.entries),
            "hits": sum(entry.hits for frame in frames[:1] for entry in frame.entries),
            "misses": sum(active.misses.get(frame, 0) for frame in frames[:1]) if active is not None else 0,
            "by_entry": [
                {
                    **_gpu_of(entry.record),
                    "function": frame.record["qualname"],
                    "loaded": entry.ready,
                    "hits": entry.hits,
                }
                for frame in frames
                for entry in frame.entries
            ],
            "left_out": list(installation.left_out.get(name, ())),
            "rounded": _kind_of(record.get("rounded"), installation.variant),
            "skipped": [skipped["function"] for skipped in record.get("skipped", ())],
        }
    for record in installation.manifest.get("left_out", ()):
        entrypoints[record["name"]] = {
            "target": record["target"],
            "active": False,
            **dict.fromkeys(("entries", "loaded", "hits", "misses"), 0),
            "by_entry": [],
            "left_out": ["it was left out when the wheel was built, because it failed there"],
            "rounded": None,
            "skipped": [],
        }
    cell = cell_name(installation.manifest["built_with"]) if installation.manifest else None
    if cell is None and not reason:
        reason = "torch has not been imported, so that no cell is chosen yet"
    return {
        "installed": bool(installation.entrypoints) and not installation.uninstalled and not reason,
        "reason": reason,
        "variant": installation.variant,
        **_for_gpus(installation),
        "cell": cell,
        "cells": [each["name"] for each in installation.cells] or [cell],
        "entrypoints": entrypoints,
        "prepared_bytes": _prepared_bytes(installation),
    }


def _gpu_of(record: dict[str, Any]) -> dict[str, Any]:
    """Of an entry for GPUs, its variant, and whether it serves the first GPU alone."""
    found = record.get("gpu")
    return found if isinstance(found, dict) else {}


def _for_gpus(installation: Installation) -> dict[str, Any]:
    """The variants for GPUs, where there are such, and those of them of which the build has run no kernel."""
    variants = [each for each in installation.manifest.get("variants", ()) if "device" in each]
    if not variants:
        return {}
    return {
        "gpu_variants": [each["name"] for each in variants],
        "compiled_not_run": [each["name"] for each in variants if not each.get("run", False)],
    }


def _prepared_bytes(installation: Installation) -> int:
    """What was computed of weights that do not change takes in memory."""
    fixed = installation.loaded_bundle.fixed_weights if installation.loaded_bundle is not None else ()
    return sum(tensor.numel() * tensor.element_size() for each in fixed for tensor in each.tensors())


def _kind_of(rounded: Any, variant: str | None) -> str | None:
    """What the manifest has for a variant, whatever else became of it."""
    found = rounded.get(variant) if isinstance(rounded, dict) else None
    return found if isinstance(found, str) else None


WHOLE = True
