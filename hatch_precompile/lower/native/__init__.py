"""Guards as native code: from their text to a library."""
