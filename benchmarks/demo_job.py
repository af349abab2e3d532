"""The example's job, measured: demo_job.py WAY QUERY LINES.

WAY is "eager", "jit" or "wheel"; LINES a text file. Finds the line nearest to the query and prints, as JSON,
that line's index, all embeddings and the measurements. Runs where the example's wheel is installed.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from inside import announce, compilers_imported, resident_mb, served, steady_state


def main(way: str, query: str, file: str) -> None:
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    import torch
    from minilm_search.search import Embedder

    embedder = Embedder()
    built = time.perf_counter()
    if way == "jit":
        embedder.model = torch.compile(embedder.model)
    vectors = embedder.embed(lines)
    asked = embedder.embed([query])
    answer = int((vectors @ asked[0]).argmax())
    after_model_s = time.perf_counter() - built
    announce()

    steady_ms, batch_ms = (
        steady_state(lambda texts=texts: embedder.embed(texts))[0] * 1e3 for texts in ([query], lines)
    )
    rss_mb, peak_mb = resident_mb()
    hits, misses = served("minilm_search")
    fields = {
        "after_model_s": after_model_s,
        "steady_ms": steady_ms,
        "batch_ms": batch_ms,
        "rss_mb": rss_mb,
        "peak_mb": peak_mb,
        "hits": hits,
        "misses": misses,
        "imported": compilers_imported(),
        "answer": answer,
        "embeddings": torch.cat([vectors, asked]).flatten().tolist(),
    }
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
