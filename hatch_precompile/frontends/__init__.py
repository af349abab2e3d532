"""How a build begins: the hooks of Hatch and setuptools, and the PEP 517 front end of the command line."""
