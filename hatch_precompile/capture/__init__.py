"""Build-time tracing: runs samples under dynamo and hands on frames, entries and graphs."""
