try:
    from steady import _precompiled
except ImportError:
    pass
else:
    _precompiled.install()
