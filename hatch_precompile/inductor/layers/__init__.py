"""What of fixed weights is made once, and functions of ours that the library of a graph has."""
