"""Bundles of the zoo (tests/zoo) that do not fit or are not wanted; scenarios import it themselves."""

from __future__ import annotations

import logging
import sys
import warnings
from dataclasses import dataclass
from typing import Any

import probe


@dataclass
class _Used:
    model: Any
    x: Any
    same: bool
    said: list[str]


def _use() -> _Used:
    """Import the package and call its model three times: does it do as eager code, and our warnings."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        import torch
        import zoo.models

        model = zoo.models.Mlp().eval()
        x = torch.randn(4, 8)
        with torch.no_grad():
            same = [torch.equal(model(x), probe.eager(model)(x)) for _ in range(3)]
    return _Used(model, x, all(same), _ours(said))


def _ours(said: list[warnings.WarningMessage]) -> list[str]:
    return [str(each.message) for each in said if each.category.__name__ == "PrecompileWarning"]


def calls() -> dict[str, Any]:
    used = _use()
    return {"same": used.same, "said": used.said, "imported": probe.compilers()}


def hits() -> dict[str, Any]:
    """Of the three calls and one more."""
    used = _use()
    import torch

    with torch.no_grad():
        used.model(used.x)
    return {"said": used.said, "hits": probe.hits("mlp")}


def calls_of_one_entrypoint_and_another() -> dict[str, Any]:
    """The second one's hits, and the first one's status."""
    _use()
    import torch
    import zoo.functions

    with torch.no_grad():
        zoo.functions.whiten(torch.randn(2, 3, 4, 5))
    return {"whiten": probe.hits("whiten"), "mlp": probe.status("mlp")}


def calls_with_nothing_installed() -> dict[str, Any]:
    used = _use()
    import zoo

    return {
        "same": used.same,
        "said": used.said,
        "status": zoo._precompiled.status(),
        "activated": probe.activated(zoo.models.Mlp.forward),
        "modules": [name for name in sys.modules if name.startswith("zoo._precompiled.")],
    }


def hits_and_misses_for_the_log() -> None:
    import torch
    import zoo.models
    from zoo._precompiled.explaining import reporting

    reporting.SECONDS = 10**9
    model = zoo.models.Mlp().eval()
    with torch.no_grad():
        for rows in (4, 5, 17, *[18] * 20):
            model(torch.randn(rows, 8))


def calls_that_are_never_served(hits: int) -> list[str]:
    """Warnings of 30 calls with gradients on, after so many that are served."""
    import torch
    import zoo.models

    model, x = zoo.models.Mlp().eval(), torch.randn(4, 8)
    with torch.no_grad():
        for _ in range(hits):
            model(x)
    assert (probe.hits("mlp"), probe.misses("mlp")) == (hits, 0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(30):
            model(x)
    assert (probe.hits("mlp"), probe.misses("mlp")) == (hits, 30)
    return [str(warning.message) for warning in said]


def facts_in_log_records() -> list[Any]:
    """What a handler of the process gets, from the package's import to a miss."""
    facts = []

    class Facts(logging.Handler):
        def emit(self, record: Any) -> None:
            facts.append(record.precompiled)

    logging.basicConfig(format="mine: %(message)s", stream=sys.stdout, level=logging.INFO)
    logging.getLogger("zoo._precompiled").addHandler(Facts())
    import torch
    import zoo.models

    with torch.no_grad():
        error = probe.attempt(lambda: zoo.models.Mlp().eval()(torch.ones(4, 8, dtype=torch.long)))
    assert isinstance(error, RuntimeError)
    return facts


def misses_before_and_after_dynamo_is_imported() -> dict[str, Any]:
    """The compilers imported at the first, and the misses there were."""
    import torch
    import zoo.models

    model = zoo.models.Mlp().eval()
    with torch.no_grad():
        model(torch.randn(17, 8))
        before = probe.compilers()
        import torch._dynamo

        model(torch.randn(18, 8))
    return {"before": before, "misses": probe.misses("mlp")}


def calls_of_three_entrypoints() -> dict[str, Any]:
    """One of them traced what may have changed: whether it is right, what is said, and the hits of each."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        import torch
        import zoo.functions
        import zoo.models
        import zoo.tools

        torch.set_grad_enabled(False)
        kind = getattr(zoo.models, "Mlp", None) or zoo.models.Perceptron
        model, x = kind().eval(), torch.randn(4, 8)
        same = [torch.equal(model(x), probe.eager(model)(x)) for _ in range(2)]
        zoo.models.Chatty()(torch.randn(6))
        zoo.functions.whiten(torch.randn(2, 3, 4, 5))
        hits = {name: probe.hits(name) for name in ("mlp", "chatty", "whiten")}
    return {"same": all(same), "said": _ours(said), "hits": hits}
