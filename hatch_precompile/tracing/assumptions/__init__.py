"""What a trace takes for constant and has no guard for: where dynamo does so, watched, and what was seen."""
