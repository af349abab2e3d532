"""A project's package, whose source is read and never imported."""

from .model import Encoder as Encoder
