"""Private names of torch's, but for those that a graph needs around it."""

WHOLE = True
