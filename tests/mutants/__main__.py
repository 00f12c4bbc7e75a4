"""`make mutants`: changes of meaning in the pure parts, one at a time, drawn with a seed, and which of them no fast test notices.

    python -m tests.mutants                     400 drawn ones of all that there are
    python -m tests.mutants --all src/understudy/core/quiesce.py
    python -m tests.mutants --lived FILE        only what lived in this file, which --json wrote

What lives and is known stands in `survivors.toml` with the reason why it may: equivalent (the program means the same) or harmless. It
counts neither for nor against. What is to be mended may stand there as well, and counts. The exit code is 1 if anything lives that is not
named there.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tomllib
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.mutants.operators import Mutant, mutants
from tests.mutants.run import ROOT, SOURCE, Trial, passes, trials

CORE = sorted((SOURCE / "understudy/core").glob("*.py"))
OTHERS = [SOURCE / "understudy/orchestrator/quorum/raft.py", SOURCE / "understudy/orchestrator/quorum/roster.py"]
PURE = [*CORE, *OTHERS, SOURCE / "understudy/detectors/hang.py", SOURCE / "understudy/network/paths.py"]
FAST = {  # the tests of each part, the quickest first
    "core": ["tests/scenarios", "tests/core", "tests/orchestrator/test_lost_together.py"],
    "orchestrator": ["tests/orchestrator/quorum/test_roster.py", "tests/orchestrator/quorum/test_raft.py"],
    "detectors": ["tests/detectors/test_hang.py", "tests/detectors/test_heartbeats.py"],
    "network": ["tests/network/test_paths.py"],
}
VERDICTS = ("equivalent", "harmless", "to be mended")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="only these sources; default: core, quorum, hang watch, rails")
    parser.add_argument("--sample", type=int, default=400, metavar="N", help="so many are drawn (default 400)")
    parser.add_argument("--all", action="store_true", help="no draw: all (an hour or two)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (default 1)")
    parser.add_argument("--lived", type=Path, metavar="FILE", help="only those that lived in this file, which --json wrote")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1, metavar="N", help="tries at the same time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for all results")
    options = parser.parse_args()

    files = [path.resolve() for path in options.files] or PURE
    for path in files:
        if not any(path.is_relative_to(SOURCE / "understudy" / part) for part in FAST):
            parser.error(f"{path} is not below one of {', '.join(f'src/understudy/{part}' for part in FAST)}")
    everything = [(path, mutant) for path in files for mutant in mutants(path.read_text())]
    chosen = everything
    if options.lived:
        lived = {one["key"] for one in json.loads(options.lived.read_text()) if one["outcome"] == "lives"}
        chosen = [(path, mutant) for path, mutant in everything if Trial(path, mutant, "").key in lived]
    elif not options.all:
        chosen = random.Random(options.seed).sample(everything, min(options.sample, len(everything)))
    for tests in {id(tests): tests for tests in (tests_of(path) for path, _ in chosen)}.values():
        if not passes(tests):
            print(f"the tests do not pass as the sources are: pytest {' '.join(tests)}", file=sys.stderr)
            return 2
    return _report(everything, _try(chosen, options.at_once), options.json)


def _try(chosen: list[tuple[Path, Mutant]], at_once: int) -> list[Trial]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    done = []
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("mutants", total=len(chosen))
        for trial in trials([(path, mutant, tests_of(path)) for path, mutant in chosen], at_once):
            done.append(trial)
            lives = sum(one.outcome == "lives" for one in done)
            progress.update(bar, advance=1, description=f"{lives} live")
    return done


def tests_of(path: Path) -> list[str]:
    """The fast tests of what this file is a part of."""
    return FAST[path.relative_to(SOURCE / "understudy").parts[0]]


def known() -> dict[str, str]:
    """The contents of `survivors.toml`: the verdict of each key. Raises ValueError if it has something else."""
    verdicts: dict[str, str] = {}
    for key, said in tomllib.loads((Path(__file__).parent / "survivors.toml").read_text()).items():
        verdict, _, why = said.partition(": ")
        if verdict not in VERDICTS or not why:
            raise ValueError(f"survivors.toml: {key!r} must say one of {', '.join(VERDICTS)}, a colon and why, not {said!r}")
        verdicts[key] = verdict
    return verdicts


def _report(everything: list[tuple[Path, Mutant]], done: list[Trial], file: Path | None) -> int:
    verdicts = known()
    if file is not None:
        table = [{"key": one.key, "line": one.mutant.line, "outcome": one.outcome} for one in done]
        file.write_text(json.dumps(table, indent=1))
    there = {Trial(path, mutant, "").key for path, mutant in everything}
    files = {path for path, _ in everything}
    gone = {key for key in verdicts if key not in there and SOURCE / "understudy" / key.partition(":")[0] in files}
    for key in sorted(gone):
        print(f"survivors.toml names what is not there any more: {key}")
    lives = sorted((one for one in done if one.outcome == "lives"), key=lambda one: (one.path, one.mutant.line))
    open_ones = [one for one in lives if one.key not in verdicts]
    for one in open_ones:
        print(f"lives: {one.path.relative_to(ROOT)}:{one.mutant.line} {one.mutant}")
    excused = sum(verdicts.get(one.key) in ("equivalent", "harmless") for one in lives)
    counted = len(done) - excused
    killed = len(done) - len(lives)
    share = 100 * killed // counted if counted else 100
    print(
        f"{len(done)} of {len(everything)} tried: {killed} killed, {len(lives)} live, of which {excused} are equivalent or harmless and "
        f"{len(lives) - excused - len(open_ones)} to be mended: {share} % of those that count are killed"
    )
    return 1 if open_ones or gone else 0


if __name__ == "__main__":
    sys.exit(main())
