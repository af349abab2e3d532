"""Guards as native code: checks become C, and C a library."""
