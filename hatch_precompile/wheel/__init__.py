"""What the wheel gets besides the bundle: a line in `__init__`, a tag, a requirement."""
