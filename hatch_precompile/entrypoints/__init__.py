"""What an entrypoint names: the target, its instance, its samples."""
