"""Records of calls, as HATCH_PRECOMPILE=record writes them: their reading, and the samples that are in them."""
