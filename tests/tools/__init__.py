"""Tools that people use on models, each tried on a wheel's model and on the same without compiled code."""
