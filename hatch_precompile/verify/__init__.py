"""Every sample of a finished bundle, run again in a clean process: the parent starts the child."""
