"""A second wheel, whose entrypoints are those of the zoo and of the library that the zoo uses."""
