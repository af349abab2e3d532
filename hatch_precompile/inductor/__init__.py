"""Driving inductor and AOTAutograd, for any hardware: graphs in, libraries out.

What one kind of hardware has of its own is in backends/. Seen in torch 2.11.0 and 2.13.0 to 2.15.0.
"""

from __future__ import annotations

from hatch_precompile.inductor.compiling import CompiledGraph, compile_graph
from hatch_precompile.inductor.settings import capture_settings, compiler_settings

__all__ = ["CompiledGraph", "capture_settings", "compile_graph", "compiler_settings"]
