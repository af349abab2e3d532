"""A Hatch build hook that compiles a model's entrypoints at build time and ships the result in its wheel.

This package runs on the build machine only. What runs where the wheel is installed is the runtime,
the modules of the folder `templates`, which are copied into the wheel and import nothing from here.
"""

__version__ = "0.1.0"
