"""Products of layers: by which function, in which precision, and what of fixed weights is made once."""
