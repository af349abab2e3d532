"""`make truth`: programs are built once, something changes, and the wheel has to answer as eager code does.

make truth                                   every program, every change; build/truth.json
make truth TRUTH="--program Linear,swaps"    some programs
make truth TRUTH="--change hook,source:"     changes whose kind or words contain one of these
make truth TRUTH="--resume"                  go on with a run that was stopped
make truth TRUTH="--keep-builds"             take the bundles there are, with the runtime as it is now
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import multiprocessing
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.conftest import preload
from tests.truth.building import REPOSITORY, Built, built
from tests.truth.cases import Case, cases_of, exploration_of, only_kinds
from tests.truth.catalogue import Program, all_programs
from tests.truth.judge import Verdict, judge
from tests.truth.report import FAILURES, as_json, summary, told
from tests.truth.servers import Servers

__all__ = ["Options", "Truth"]


class Options(argparse.Namespace):
    """`limit`: at most so many cases of a program; 0 for all."""

    program: str = ""
    change: str = ""
    resume: bool = False
    every: bool = False
    keep_builds: bool = False
    jobs: int = 2
    limit: int = 0
    quiet: bool = False


class Truth:
    """A run. `directory`: where programs are built and results are kept."""

    def __init__(self, directory: Path, options: Options) -> None:
        self.directory = directory
        self.options = options
        self.verdicts: list[Verdict] = []
        self.built: list[Built] = []
        self._lock = Lock()
        # Python 3.11 loses count of its depth where two threads parse at once.
        self._parsing = Lock()
        self._results = directory / "results.jsonl"
        self._plain: dict[str, Any] = {}
        self._done: set[str] = set()
        self._later: list[Case] = []

    def run(self, programs: list[Program]) -> dict[str, Any]:
        """Build, run every case, and return what build/truth.json has."""
        started = time.perf_counter()
        self.directory.mkdir(parents=True, exist_ok=True)
        self._build(programs)
        self._done = self._results_before()
        usable = [each for each in self.built if not each.refused]
        self._say(f"{len(usable)} programs, {len(self._done)} cases done before")
        self._in_parallel(usable, self._all_but_environments)
        # Those that want a server with an environment of its own: the same one for many programs.
        later = sorted(self._later, key=lambda case: (case.environment, case.program.name))
        groups = itertools.groupby(later, key=lambda case: case.environment)
        self._in_parallel([list(group) for _, group in groups], self._each_of)
        return as_json(self.verdicts, self.built, time.perf_counter() - started)

    def _build(self, programs: list[Program]) -> None:
        (self.directory / "sites").mkdir(exist_ok=True)
        build = functools.partial(built, directory=self.directory / "sites", keep=self.options.keep_builds)
        # Processes: a build that fails ends all children of its own.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(self.options.jobs, mp_context=context, initializer=preload) as pool:
            for result in pool.map(build, programs):
                self.built.append(result)
                if result.refused:
                    self._say(f"REFUSED  {result.program.name}: {result.refused}")

    def _in_parallel(self, jobs: list[Any], work: Callable[[Any, Servers], None]) -> None:
        """Each worker has servers of its own, and takes one job after the other."""
        waiting: SimpleQueue[Any] = SimpleQueue()
        for job in jobs:
            waiting.put(job)

        def worker(number: int) -> None:
            directory = self.directory / f"worker-{number}"
            servers = Servers(directory, self.directory / "sites", self.directory / "cache")
            try:
                while True:
                    work(waiting.get_nowait(), servers)
            except Empty:
                return
            finally:
                servers.close()

        with ThreadPoolExecutor(self.options.jobs) as pool:
            for working in [pool.submit(worker, number) for number in range(self.options.jobs)]:
                working.result()

    def _all_but_environments(self, each: Built, servers: Servers) -> None:
        cases = [case for case in self._cases(each, servers) if case.key not in self._done]
        self._later += [case for case in cases if case.environment]
        self._each_of([case for case in cases if not case.environment], servers)

    def _each_of(self, cases: list[Case], servers: Servers) -> None:
        for case in cases:
            self._keep(judge(case, servers, self._without_change(case, servers)))

    def _cases(self, each: Built, servers: Servers) -> list[Case]:
        with self._parsing:
            exploration = exploration_of(each.program)
        found = servers.ask(exploration, "eager", limit=240.0)
        if found.report is None:
            raise RuntimeError(f"{each.program.name} does not run: {found.ended}, {found.log}")
        places = dict(found.notes).get("places")
        ways = [list(place.content) for place in places.content] if places is not None else []
        with self._parsing:
            cases = cases_of(each, ways, every=self.options.every)
        wanted = [word for word in self.options.change.split(",") if word]
        if wanted:
            cases = only_kinds(cases, wanted)
        if self.options.limit:
            # Spread over all of them, and other ones for another program.
            step = max(1, len(cases) // self.options.limit)
            cases = cases[len(each.program.name) % step :: step][: self.options.limit]
        return cases

    def _without_change(self, case: Case, servers: Servers) -> Any:
        """What eager code does without a change."""
        name = case.program.name
        if name not in self._plain:
            from dataclasses import replace

            from tests.truth.changes import CHANGES

            plain = replace(case, change=CHANGES["nothing"], parameter=None, files={})
            self._plain[name] = servers.ask(plain, "eager").notes
        return self._plain[name]

    def _keep(self, verdict: Verdict) -> None:
        with self._lock:
            self.verdicts.append(verdict)
            with self._results.open("a") as file:
                file.write(json.dumps(verdict.as_json()) + "\n")
        if verdict.verdict in FAILURES or verdict.needless:
            self._say(told(verdict))
        if len(self.verdicts) % 200 == 0:
            self._say(f"-- {len(self.verdicts)} cases, {time.strftime('%H:%M:%S')}")

    def _results_before(self) -> set[str]:
        """The cases of a run that was stopped; without `resume` it is forgotten."""
        if not self.options.resume or not self._results.exists():
            self._results.unlink(missing_ok=True)
            return set()
        self.verdicts = [Verdict(**json.loads(line)) for line in self._results.read_text().splitlines()]
        return {verdict.key for verdict in self.verdicts}

    def _say(self, text: str) -> None:
        if not self.options.quiet:
            with self._lock:
                print(text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--program", "--programs", default="", help="names, separated by commas")
    parser.add_argument("--change", "--changes", default="", help="parts of kinds or words, with commas")
    parser.add_argument("--resume", action="store_true", help="leave out what is done")
    parser.add_argument("--every", action="store_true", help="every change on every program: hours")
    parser.add_argument("--keep-builds", action="store_true", help="build only what was never built")
    parser.add_argument("--jobs", type=int, default=2, help="workers")
    parser.add_argument("--limit", type=int, default=0, help="cases of each program, at most")
    options = parser.parse_args(namespace=Options())
    wanted = [name for name in options.program.split(",") if name]
    programs = [program for program in all_programs() if not wanted or program.name in wanted]
    if len(programs) < len(wanted):
        parser.error(f"no such program; there are {', '.join(each.name for each in all_programs())}")
    result = Truth(REPOSITORY / "build/truth", options).run(programs)
    (REPOSITORY / "build/truth.json").write_text(json.dumps(result, indent=1) + "\n")
    print(summary(result))
    return 1 if result["wrong"] or result["crashes"] or result["hangs"] else 0


if __name__ == "__main__":
    sys.exit(main())
