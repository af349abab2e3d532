"""Programs as people write them around models, tiny: `NAME.make()` gives what it works with, `NAME.use(made)`
does the whole thing and yields what came out, `NAME.workload()` is what its wheel was built from.
"""
