"""As in a runtime that has weights to pack: a model that imports it asks what the processor is fast with."""


def onednn_is_fast():
    return True
