"""What people get wrong in their first hour, each as a small project and the words that must lead them on.

A mistake changes files of one project: `{path: text}` replaces a file, `{path: (old, new)}` a part of it, and
`{path: None}` takes it away. `told`: words of the sentence.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["MISTAKES", "PROJECT", "Mistake"]

ADDMM = "addmm: " if torch.__version__ >= (2, 15) else ""
"""What torch puts before its words about a product."""
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
        # weights

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
    told: str


MISTAKES = (
    # The table.
    Mistake(
        "a module as the target", {TOML: ("moods.model:Reader", "moods.model")}, 'like "package.module:name"'
    ),
    Mistake("a misspelt class", {TOML: ("moods.model:Reader", "moods.model:reader")}, "did you mean Reader?"),
    Mistake(
        "a misspelt module", {TOML: ("moods.model:Reader", "moods.modle:Reader")}, "did you mean moods.model?"
    ),
    Mistake("a misspelt key", {TOML: ("samples = ", "sample = ")}, "unknown key; did you mean samples?"),
    Mistake(
        "a table for an array of tables",
        {
            TOML: (
                "[[tool.hatch.build.hooks.precompile.entrypoints]]",
                "[tool.hatch.build.hooks.precompile.entrypoints]",
            )
        },
        "write [[tool.hatch.",
    ),
    Mistake(
        "no entrypoints", {TOML: (PROJECT[TOML][PROJECT[TOML].index(TABLE) :], "")}, "but the key is missing"
    ),
    Mistake(
        "an argument that is not there",
        {TOML: ("word_ids.0", "words_ids.0")},
        "no such argument; it has word_ids",
    ),
    Mistake(
        "a dimension that is not there",
        {TOML: ("word_ids.0", "word_ids.2")},
        "word_ids.2: the sample has 2 dim",
    ),
    Mistake(
        "a range the wrong way round",
        {TOML: ("min = 2, max = 64", "min = 64, max = 2")},
        "expected min <= max",
    ),
    Mistake(
        "a range that no sample is in",
        {TOML: ("min = 2, max = 64", "min = 16")},
        "no sample has a size of 16 or more, but 8; give one",
    ),
    Mistake("an unknown variant", {TOML: ("verify = true", 'variants = ["avx2"]')}, 'known: "native", "'),
    Mistake(
        "a target of torch's own",
        {TOML: ("moods.model:Reader", "torch.nn:Linear")},
        "name a module or a function of yours",
    ),
    Mistake(
        "a target below src",
        {TOML: ("moods.model:Reader", "src.moods.model:Reader")},
        "did you mean moods.model?",
    ),
    Mistake(
        "a model as the target",
        {
            TOML: ("moods.model:Reader", "moods.model:reader"),
            MODEL: PROJECT[MODEL] + "\n\nreader = Reader()\n",
        },
        'name its class, "moods.model:Reader", and with the key "instance"',
    ),
    Mistake(
        "a compiled model as the target",
        {
            TOML: ("moods.model:Reader", "moods.model:reader"),
            MODEL: PROJECT[MODEL] + "\n\nreader = torch.compile(Reader())\n",
        },
        'name its class, "moods.model:Reader", and with the key "instance"',
    ),
    Mistake(
        "a model as the instance",
        {
            TOML: ("samples =", 'instance = "moods.model:reader"\nsamples ='),
            MODEL: PROJECT[MODEL] + "\n\nreader = Reader()\n",
        },
        "is an object of Reader; name a function that returns one",
    ),
    Mistake(
        "an entrypoint twice",
        {TOML: PROJECT[TOML] + PROJECT[TOML][PROJECT[TOML].index(TABLE) :]},
        "got the same",
    ),
    Mistake(
        "a mode of torch.compile",
        {TOML: ("samples =", 'options = { mode = "max-autotune" }\nsamples =')},
        "torch._inductor.list_mode_options() has",
    ),
    Mistake(
        "an option that is not there",
        {TOML: ("samples =", "options = { max-autotun = true }\nsamples =")},
        "no setting max_autotun; did you mean max_autotune?",
    ),
    Mistake(
        "another torch than the project allows",
        {TOML: ('dependencies = ["torch"]', 'dependencies = ["torch<2.0"]')},
        "pin a torch in build-system.requires that the project's dependencies allow",
    ),
    # The samples.
    Mistake(
        "return for yield",
        {SAMPLES: ("yield (", "return (")},
        "returned a tuple, which is one sample: yield it",
    ),
    Mistake("a tensor returned", {SAMPLES: (YIELD, "return torch.ones(8)")}, "as in `yield (x,)`"),
    Mistake(
        "a tensor for a tuple",
        {SAMPLES: (YIELD, "yield torch.ones(8)")},
        "sample 1 is a Tensor; a sample is a tuple",
    ),
    Mistake(
        "a forgotten return",
        {SAMPLES: (YIELD, "[(torch.ones(8, 12),)]")},
        "returned nothing; a sample is a tuple",
    ),
    Mistake("nothing yielded", {SAMPLES: (YIELD, "yield from ()")}, "returned no sample"),
    Mistake(
        "a list for a function",
        {SAMPLES: "sentences = []\n"},
        "is a list; name a function that yields samples",
    ),
    Mistake(
        "an argument for samples",
        {SAMPLES: ("sentences()", "sentences(count)")},
        "missing 1 required positional argument: 'count'",
    ),
    Mistake(
        "samples in the tests",
        {TOML: ("moods.samples:", "tests.samples:"), "tests/samples.py": PROJECT[SAMPLES]},
        "no such file where its package is",
    ),
    Mistake(
        "a row for rows",
        {SAMPLES: (YIELD, "yield (torch.tensor([1, 2, 3]),)")},
        f"the model itself raises RuntimeError: {ADDMM}mat1 and mat2",
    ),
    Mistake(
        "floats for word numbers",
        {SAMPLES: (YIELD, "yield (torch.ones(8, 12),)")},
        "src/moods/model.py:13 in forward",
    ),
    Mistake(
        "an argument too many",
        {SAMPLES: (YIELD, "yield (torch.ones(8, 12), 1)")},
        "sample 1/1 does not fit moods.model:Reader(word_ids:",
    ),
    Mistake(
        "samples on a GPU",
        {SAMPLES: (YIELD, "yield (torch.ones(8, device='cuda'),)")},
        "samples are made on the CPU",
    ),
    Mistake(
        "a dict in a tuple",
        {SAMPLES: (YIELD, "yield ({'word_ids': torch.ones(8, 12)},)")},
        "an object of dict, not a tensor; yield the dict itself, not in a tuple",
    ),
    Mistake(
        "samples without an end",
        {SAMPLES: (YIELD, "while True:\n        yield (torch.ones(8, 12),)")},
        "returned more than 1000 samples, each of which is traced",
    ),
    # The model.
    Mistake(
        "a sample that was computed with gradients",
        {SAMPLES: (YIELD, "yield (torch.ones(8, 12, requires_grad=True) * 2,)")},
        "copy.deepcopy makes; yield it with .detach()",
    ),
    Mistake(
        "a model on a GPU",
        {MODEL: ("# weights", "self.cuda()")},
        "; models are made on the CPU, for which the build",
    ),
    Mistake(
        "a call on a GPU",
        {MODEL: ("self.words(word_ids)", "self.words(word_ids.cuda())")},
        "The model and all that it computes are made on the CPU",
    ),
    Mistake(
        "a program that asks for arguments",
        {
            MODEL: (
                "import torch\n",
                "import sys\n\nimport torch\n\nif len(sys.argv) == 1:\n    sys.exit('Which model?')\n",
            )
        },
        "src/moods/model.py:6 in <module>",
    ),
    Mistake(
        "a module of the same package by its last name",
        {MODEL: ("import torch\n", "import torch\nimport layers\n"), "src/moods/layers.py": ""},
        "did you mean moods.layers?",
    ),
    Mistake(
        "a constructor with arguments",
        {MODEL: ("def __init__(self)", "def __init__(self, size: int)")},
        'with the key "instance"',
    ),
    Mistake(
        "weights by a relative path",
        {MODEL: ("# weights", "self.load_state_dict(torch.load('weights.pt'))")},
        "Path(__file__).with_name('weights.pt')",
    ),
    Mistake(
        "a requirement that is not declared",
        {MODEL: ("import torch\n", "import torch\nimport not_there\n")},
        "name it in its dependencies",
    ),
    Mistake(
        "a module that is made later",
        {MODEL: ("import torch\n", "import torch\n\nfrom ._version import VERSION\n")},
        "moods has no such module; if something makes its file, that must run",
    ),
    Mistake(
        "a constructor that does not call its base's",
        {MODEL: ("        super().__init__()\n", "")},
        "cannot assign module before Module.__init__() call, at ",
    ),
    Mistake(
        "a package called as one of Python's",
        {
            TOML: PROJECT[TOML].replace("moods", "token"),
            **{path.replace("moods", "token"): text for path, text in PROJECT.items() if path != TOML},
        },
        "src/token cannot be imported beside a module of the same name",
    ),
    Mistake(
        "no forward",
        {MODEL: ("def forward", "def predict")},
        "has no forward; name the method that its users call",
    ),
    Mistake(
        "the call of a class",
        {TOML: ("moods.model:Reader", "moods.model:Reader.__call__")},
        'name the class, "moods.model:Reader"',
    ),
    Mistake(
        "a module that is made later, of __init__",
        {"src/moods/__init__.py": "from ._version import VERSION\n"},
        "moods has no such module; if something makes its file, that must run",
    ),
    Mistake("a syntax error", {MODEL: ("(nn.Module):", "(nn.Module)")}, "src/moods/model.py:5)"),
    Mistake(
        "a class under torch.compile",
        {MODEL: ("class Reader", "@torch.compile\nclass Reader")},
        "take the decorator away",
    ),
    # The wheel.
    Mistake(
        "a flat module",
        {TOML: ('packages = ["src/moods"]', 'only-include = ["moods.py"]'), "moods.py": ""},
        "make it moods/__init__.py",
    ),
    Mistake(
        "a package without __init__",
        {"src/moods/__init__.py": None},
        "without an __init__.py, which would install",
    ),
    Mistake(
        "two packages",
        {TOML: ('"src/moods"]', '"src/moods", "more"]'), "more/__init__.py": ""},
        "name the package that carries the bundle",
    ),
    Mistake("a folder that is not there", {TOML: ("src/moods", "moods")}, "the wheel holds no Python file"),
)
