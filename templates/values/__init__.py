"""What the data of a bundle stands for in this process: objects by their place, constants, classes."""

WHOLE = True
