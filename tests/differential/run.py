"""`make differential`: every mutation of every frame, then random pairs; build/differential.json."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))

from differential.frames import held_frames
from differential.report import Tally, all_mutations, try_mutations

PAIRS = 1500  # for each frame


def main() -> int:
    tally = Tally()
    chance = random.Random(0)
    for frame, frame_locals in held_frames():
        tally.frames += 1
        mutations = all_mutations(frame, frame_locals)
        for mutation in mutations:
            try_mutations(tally, frame, frame_locals, [mutation])
        for _ in range(PAIRS):
            try_mutations(tally, frame, frame_locals, chance.sample(mutations, 2))
        print(f"{frame.name}: {len(mutations)} mutations, {tally.mutations} so far", flush=True)
    result = tally.as_json()
    target = Path(__file__).parents[2] / "build/differential.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({key: result[key] for key in ("mutations", "frames", "wrong_hits", "extra_misses")}))
    for what in tally.wrong_hits[:20] + tally.dishonest[:20]:
        print(what)
    return 1 if tally.wrong_hits or tally.dishonest else 0


if __name__ == "__main__":
    sys.exit(main())
