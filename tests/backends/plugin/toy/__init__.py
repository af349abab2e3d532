"""A kind of hardware that there is not: any machine builds for it, with inductor as it is."""

import platform

from hatch_precompile.backends.base import Backend, Variant


class Toy(Backend):
    name = "toy"
    machines = frozenset({platform.machine()})
    hardware = "toy"
    variants = ("toy-1", "toy-2")
    native = "toy-native"

    def capabilities(self):
        return frozenset({"wheels", "wings", "wire"})

    def variant(self, name):
        requires = ("wheels", "wings", "wire", "wit")[: 3 if name == "toy-1" else 4]
        return Variant(name, requires, {}, self.name)

    def native_variant(self, capabilities):
        return Variant(self.native, tuple(sorted(capabilities)), {}, self.name)


BACKEND = Toy()
