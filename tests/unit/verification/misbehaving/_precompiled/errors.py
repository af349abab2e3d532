"""What compiled code does otherwise than eager code, a model asks for here."""

mode = "off"


class PrecompileError(RuntimeError):
    pass
