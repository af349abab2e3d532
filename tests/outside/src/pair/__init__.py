"""A small package for changes of its manifest: tests/outside/changed_manifests.py."""
