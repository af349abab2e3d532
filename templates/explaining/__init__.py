"""What is said of calls: why one is not served, what would help, and what is installed."""

WHOLE = True
