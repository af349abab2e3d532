"""Records of calls, as HATCH_PRECOMPILE=record writes them: their reading, and which samples they need."""
