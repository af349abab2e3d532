"""The configuration table: its model, its reading, what editors are told about it."""

from hatch_precompile.config.model import HATCH_KEYS, Config, Dimension, Entrypoint, Matrix, load

__all__ = ["HATCH_KEYS", "Config", "Dimension", "Entrypoint", "Matrix", "load"]
