"""One of each kind of entrypoint, none larger than it must be. Lazy: importing it imports no torch."""


def __getattr__(name):
    import importlib

    if name in ("bert", "functions", "helpers", "models", "samples", "tools", "used"):
        return importlib.import_module(f"zoo.{name}")
    raise AttributeError(name)
