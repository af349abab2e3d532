"""A package in a process full of things that do not want to be looked at."""

import sys

from . import things

sys.modules["looking.optional"] = things.Optional("looking.optional")
sys.modules["looking.later"] = things.Later("looking.later")
sys.modules["looking.no_module"] = things.Hostile()
