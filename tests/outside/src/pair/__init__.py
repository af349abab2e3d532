"""A small package for changes of its manifest: tests/outside/manifests.py."""
