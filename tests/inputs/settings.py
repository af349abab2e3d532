"""What functions that run while dynamo traces read of another module."""

SCALE = 2.0
TWICE = 2.0
BY_WORD = 2.0
