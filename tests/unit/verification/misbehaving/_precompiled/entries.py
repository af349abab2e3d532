"""As in a runtime: how many calls an entry serves before its guard is native code."""

NATIVE_AFTER = 10
