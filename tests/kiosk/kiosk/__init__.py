"""An eager package: it has imported the target, by name, before anything can be installed."""

from kiosk.prints import tint

__all__ = ["tint"]
