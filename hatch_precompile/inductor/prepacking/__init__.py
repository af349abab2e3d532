"""What depends on fixed weights alone, taken out of a graph: made once for each instance, in the runtime."""
