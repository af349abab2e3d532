"""Models to try tools on."""
