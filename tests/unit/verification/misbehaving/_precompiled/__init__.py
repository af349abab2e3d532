"""The runtime: it says that every call is a hit, or not."""

from . import errors

hits = 0
refreshed = 0


def install(variant=None):
    errors.mode = "on"


def refresh():
    global refreshed
    refreshed += 1


def uninstall():
    errors.mode = "off"


def status():
    entry = {"function": "it", "hits": hits}
    return {"entrypoints": {"it": {"hits": hits, "skipped": [], "left_out": [], "by_entry": [entry]}}}
