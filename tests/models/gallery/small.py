"""The gallery in one size: `NAME()` makes a model and `NAME_samples()` its inputs."""

from functools import partial

from gallery import models
from gallery.cases import CASES, IN_PIECES

for _name, _case in (CASES | IN_PIECES).items():
    globals()[_name] = partial(getattr(models, _case.model), models.SMALL)
    globals()[f"{_name}_samples"] = partial(getattr(models, _case.samples), models.SMALL)
