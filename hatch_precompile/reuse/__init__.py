"""Takes over what an earlier wheel has of entrypoints that nothing has changed for."""
