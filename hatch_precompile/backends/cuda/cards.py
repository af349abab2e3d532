"""GPUs that code is compiled for: of each capability one typical card.

What a card has steers inductor's choices: how a reduction is split, what fits in shared memory. So it is the
same on every machine that builds. Other cards of that capability run the same code.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CARDS", "Card", "variant_of"]


@dataclass(frozen=True)
class Card:
    """Numbers as `torch.cuda.get_device_properties` gives them. `shared`: the bytes of shared memory that one
    block can ask for, of the `shared_by_all` of a multiprocessor."""

    name: str
    major: int
    minor: int
    multiprocessors: int
    threads: int
    shared: int
    shared_by_all: int
    memory: int
    l2_cache: int

    @property
    def capability(self) -> int:
        """In the compiler's words: 90 for 9.0."""
        return 10 * self.major + self.minor

    @property
    def serves(self) -> str:
        """The cards that run code for it, in words. From 9.0 on, Triton compiles with instructions that are
        that capability's alone (sm_90a)."""
        if self.major >= 9:
            return f"capability {self.major}.{self.minor}"
        return f"capability {self.major}.{self.minor} and above it {self.major}.x"

    def is_like(self, major: int, minor: int) -> bool:
        """Whether one of that capability runs code for it."""
        return self.major == major and (self.minor <= minor if major < 9 else self.minor == minor)


_GB = 1 << 30
_MB = 1 << 20

CARDS = {
    "cuda-sm80": Card("NVIDIA A100-SXM4-80GB", 8, 0, 108, 2048, 166912, 167936, 80 * _GB, 40 * _MB),
    "cuda-sm86": Card("NVIDIA A10", 8, 6, 72, 1536, 101376, 102400, 24 * _GB, 6 * _MB),
    "cuda-sm89": Card("NVIDIA L4", 8, 9, 58, 1536, 101376, 102400, 24 * _GB, 48 * _MB),
    "cuda-sm90": Card("NVIDIA H100 80GB HBM3", 9, 0, 132, 2048, 232448, 233472, 80 * _GB, 50 * _MB),
    "cuda-sm100": Card("NVIDIA B200", 10, 0, 148, 2048, 232448, 233472, 180 * _GB, 126 * _MB),
    "cuda-sm120": Card("NVIDIA GeForce RTX 5090", 12, 0, 170, 1536, 101376, 102400, 32 * _GB, 96 * _MB),
}
"""By the name of the variant, the lowest capability first."""


def variant_of(major: int, minor: int) -> str | None:
    """The variant whose code a card of that capability runs, and that is nearest to it; None for no such."""
    fitting = [name for name, card in CARDS.items() if card.is_like(major, minor)]
    return fitting[-1] if fitting else None
