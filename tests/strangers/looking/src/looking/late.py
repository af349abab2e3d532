"""Nobody imports this but a function that is called."""

factor = 2
