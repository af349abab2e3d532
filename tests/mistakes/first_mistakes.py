"""What people get wrong in their first hour, each as a small project and the words that must lead them on.

A mistake changes files of one project: `{path: text}` replaces a file, `{path: (old, new)}` a part of it, `{path: None}`
takes it away. `told`: words of the sentence; the last is in its advice.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MISTAKES", "PROJECT", "Mistake"]

TABLE = "[[tool.hatch.build.hooks.precompile.entrypoints]]\n"
PROJECT = {
    "pyproject.toml": f"""\
[build-system]
requires = ["hatchling", "hatch-precompile"]
build-backend = "hatchling.build"

[project]
name = "moods"
version = "1.0"
dependencies = ["torch"]

[tool.hatch.build.targets.wheel]
packages = ["src/moods"]

[tool.hatch.build.hooks.precompile]
verify = true

{TABLE}target = "moods.model:Reader"
samples = "moods.samples:sentences"
dynamic-shapes.word_ids.0 = {{ name = "sentences", min = 2, max = 64 }}
""",
    "src/moods/__init__.py": "",
    "src/moods/model.py": """\
import torch
from torch import nn


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 4)
        self.moods = nn.Linear(4, 3)

    def forward(self, word_ids: torch.Tensor) -> torch.Tensor:
        return self.moods(self.words(word_ids).mean(1))
""",
    "src/moods/samples.py": """\
import torch


def sentences():
    yield (torch.randint(0, 50, (8, 12)),)
""",
}

Change = str | tuple[str, str] | None
SAMPLES = "src/moods/samples.py"
MODEL = "src/moods/model.py"
TOML = "pyproject.toml"
YIELD = "yield (torch.randint(0, 50, (8, 12)),)"


@dataclass(frozen=True)
class Mistake:
    name: str
    changes: dict[str, Change]
    told: tuple[str, ...]


MISTAKES = (
    Mistake("a module where an object is wanted", {TOML: ("moods.model:Reader", "moods.model")}, ("target",)),
    Mistake("a dot for the colon", {TOML: ("moods.model:Reader", "moods.model.Reader")}, ("target",)),
    Mistake("a misspelt class", {TOML: ("moods.model:Reader", "moods.model:reader")}, ("Reader",)),
    Mistake("a misspelt module", {TOML: ("moods.model:Reader", "moods.modle:Reader")}, ("moods.modle",)),
    Mistake("a misspelt key", {TOML: ("samples = ", "sample = ")}, ("sample", "samples")),
    Mistake("a table for the array of tables", {TOML: ("[[tool.hatch.build.hooks.precompile.entrypoints]]", "[tool.hatch.build.hooks.precompile.entrypoints]")}, ("entrypoints", "[[")),
    Mistake("no entrypoints at all", {TOML: (PROJECT[TOML][PROJECT[TOML].index(TABLE):], "")}, ("entrypoints",)),
    Mistake("a misspelt argument in dynamic-shapes", {TOML: ("word_ids.0", "words_ids.0")}, ("words_ids", "word_ids")),
    Mistake("a dimension that is not there", {TOML: ("word_ids.0", "word_ids.2")}, ("word_ids", "dimension")),
    Mistake("return for yield", {SAMPLES: (YIELD, "return (torch.randint(0, 50, (8, 12)),)")}, ("yield",)),
    Mistake("a tensor for a tuple", {SAMPLES: (YIELD, "yield torch.randint(0, 50, (8, 12))")}, ("yield", "tuple")),
    Mistake("a bare tensor returned", {SAMPLES: (YIELD, "return torch.randint(0, 50, (8, 12))")}, ("yield",)),
    Mistake("no samples yielded", {SAMPLES: (YIELD, "yield from ()")}, ("sentences", "no sample")),
    Mistake("samples that are a list", {SAMPLES: "import torch\n\nsentences = [(torch.randint(0, 50, (8, 12)),)]\n"}, ("sentences", "function")),
    Mistake("samples that want an argument", {SAMPLES: ("def sentences():", "def sentences(count):")}, ("sentences", "argument")),
    Mistake("samples in tests", {TOML: ("moods.samples:", "tests.samples:"), "tests/samples.py": PROJECT[SAMPLES], SAMPLES: None}, ("tests.samples", "wheel")),
    Mistake("one list for a list of lists", {SAMPLES: (YIELD, "yield (torch.tensor([1, 2, 3]),)")}, ("sample 1/1", "word_ids")),
    Mistake("a sample of another dtype", {SAMPLES: (YIELD, "yield (torch.randn(8, 12),)")}, ("sample 1/1", "Long")),
    Mistake("an argument too many", {SAMPLES: (YIELD, "yield (torch.randint(0, 50, (8, 12)), 1)")}, ("sample 1/1", "argument")),
    Mistake("an unknown argument by name", {SAMPLES: (YIELD, "yield (), {'ids': torch.randint(0, 50, (8, 12))}")}, ("sample 1/1", "ids")),
    Mistake("a sample on a GPU", {SAMPLES: (YIELD, "yield (torch.randint(0, 50, (8, 12), device='cuda'),)")}, ("sentences", "cuda")),
    Mistake("a class that wants arguments", {MODEL: ("def __init__(self) -> None:", "def __init__(self, size: int) -> None:")}, ("Reader", "instance")),
    Mistake("weights by a relative path", {MODEL: ("self.moods = nn.Linear(4, 3)", "self.moods = nn.Linear(4, 3)\n        self.load_state_dict(torch.load('weights.pt'))")}, ("weights.pt", "__file__")),
    Mistake("a model at import that is not there", {MODEL: ("import torch\n", "import torch\nimport not_installed\n")}, ("not_installed", "dependencies")),
    Mistake("a flat module", {TOML: ('packages = ["src/moods"]', 'only-include = ["moods.py"]'), "moods.py": PROJECT[MODEL], "src/moods/__init__.py": None, MODEL: None, SAMPLES: None}, ("package", "__init__.py")),
    Mistake("a package without __init__", {"src/moods/__init__.py": None}, ("__init__.py",)),
    Mistake("packages that do not exist", {TOML: ('packages = ["src/moods"]', 'packages = ["moods"]')}, ("moods",)),
    Mistake("a range the wrong way round", {TOML: ("min = 2, max = 64", "min = 64, max = 2")}, ("min", "max")),
    Mistake("a range without the sample", {TOML: ("min = 2, max = 64", "min = 16, max = 64")}, ("sentences", "8")),
    Mistake("an unknown variant", {TOML: ("verify = true", 'variants = ["avx2"]')}, ("avx2", "x86-64-v3")),
    Mistake("a syntax error in the model", {MODEL: ("class Reader(nn.Module):", "class Reader(nn.Module)")}, ("model.py", "line")),
    Mistake("a compiled model", {MODEL: ("class Reader(", "@torch.compile\nclass Reader(")}, ("torch.compile",)),
    Mistake("two entrypoints of one name", {TOML: (TABLE, TABLE + 'target = "moods.model:Reader"\nsamples = "moods.samples:sentences"\n\n' + TABLE)}, ("name",)),
    Mistake("the target of another package", {TOML: ('"moods.model:Reader"', '"torch.nn:Linear"')}, ("torch",)),
)
