"""An entrypoint that lives in a dependency: transformers' BertModel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.conftest import Site


@pytest.fixture(scope="module")
def bert(zoo: Site) -> Any:
    return zoo.run("""
import sys, torch, transformers.models.bert.modeling_bert
compilers = lambda: {name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor"))}
before = compilers()
import probe, zoo.bert
torch.manual_seed(0)
model = zoo.bert.small().eval()
ids = torch.randint(0, 50, (2, 7))
mask = torch.ones_like(ids)
differences, leaves = [], []
with torch.no_grad():
    for _ in range(2):
        got = model(input_ids=ids, attention_mask=mask)
        expected = probe.eager(model)(input_ids=ids, attention_mask=mask)
        leaves.append(list(got) == list(expected) and type(got) is type(expected))
        differences += [float((got[key] - expected[key]).abs().max()) for key in got]
        model = zoo.bert.small().eval()
    imported = sorted(compilers() - before)
    hits, misses = probe.hits("bert"), probe.status("bert")["misses"]
    longer = probe.served("bert", lambda: model(input_ids=ids.repeat(1, 2), attention_mask=mask.repeat(1, 2)))
    hidden = probe.served(
        "bert", lambda: model(input_ids=ids, attention_mask=mask, output_hidden_states=True))
    model.config._attn_implementation = "eager"
    other = probe.served("bert", lambda: model(input_ids=ids, attention_mask=mask))
probe.result(
    hits=hits, misses=misses, largest=max(differences), leaves=leaves,
    imported=imported, longer=longer, hidden=hidden, other=other,
)
""").result


def test_it_hits(bert: Any) -> None:
    assert (bert["hits"], bert["misses"]) == (2, 0)


def test_it_agrees_with_eager(bert: Any) -> None:
    assert bert["leaves"] == [True, True]
    assert bert["largest"] < 1e-5


def test_no_more_of_a_compiler_is_imported_than_the_dependency_does(bert: Any) -> None:
    assert bert["imported"] == []


@pytest.mark.parametrize("call", ["longer", "hidden", "other"])
def test_another_call_is_not_served(bert: Any, call: str) -> None:
    assert bert[call] is False
