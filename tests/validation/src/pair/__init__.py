"""A small package for changes of its manifest: tests/validation/manifests.py."""
