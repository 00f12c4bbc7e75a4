"""Measure how long a recovery from a device error takes, compared with one from SIGKILL in the same job.

    python benchmarks/device_errors.py --pairs 5

Trains the small model, and injects both in turn into random ranks, at the same point of the step (the beginning of its backward).
Measured from the fault to the first later step that every rank has reported, seen from outside.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))
sys.path.insert(0, str(ROOT / "benchmarks"))

from recovery import MODELS, SETTLE, closed, wait_for  # noqa: E402
from running import RunningJob  # noqa: E402
from understudy.chaos.armed import Armed, Folder  # noqa: E402
from understudy.chaos.base import Value  # noqa: E402

FAULTS: dict[str, dict[str, Value]] = {"sigkill": {}, "device_error": {"kind": "ecc"}}  # with their parameters
POINT = "backward"


def measure(pairs: int, ranks: int, seed: int, folder: Path) -> dict[str, list[float]]:
    """Return the seconds of each recovery, by fault."""
    chance, found = random.Random(seed), dict[str, list[float]]((fault, []) for fault in FAULTS)
    arguments = ["--steps", "1000000", "--log-every", "1000", *MODELS["small"]]
    with RunningJob(folder, arguments, ranks=ranks, options=("--chaos",)) as job:
        waiting = Folder(job.run_dir)
        for number in range(2 * pairs):
            fault, name = list(FAULTS)[number % 2], f"{number}"
            wait_for(job, "a warm spare", lambda: any(spare["state"] == "warm" for spare in job.status().get("spares", [])))
            first = job.metrics.last_step()
            wait_for(job, f"{SETTLE} steady steps", lambda first=first: job.metrics.last_step() >= first + SETTLE)  # type: ignore[misc]
            waiting.arm(Armed(name, fault, chance.randrange(ranks), POINT, values=FAULTS[fault]))
            wait_for(job, fault, lambda name=name: waiting.has_fired(name))  # type: ignore[misc]
            happened = waiting.fired(name)
            assert happened is not None
            moment = float(happened["time"])
            wait_for(job, "the next step", lambda moment=moment: job.metrics.next_commit(moment) is not None)  # type: ignore[misc]
            commit = job.metrics.next_commit(moment)
            assert commit is not None
            found[fault].append(commit[1] - moment)
            wait_for(job, "the closed incident", lambda number=number: closed(job.report(), number + 1))  # type: ignore[misc]
            print(f"{fault} of rank {happened['rank']}: {found[fault][-1]:.3f} s", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Recoveries from device errors and from SIGKILL, in turn, in one job.")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--json", action="store_true", help="all figures, for programs")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="understudy-benchmark-") as folder:
        found = measure(args.pairs, args.ranks, args.seed, Path(folder) / "job")
    if args.json:
        print(json.dumps(found))
        return
    medians = {fault: statistics.median(seconds) for fault, seconds in found.items()}
    for fault, seconds in found.items():
        print(f"{fault}: median {medians[fault]:.3f} s ({min(seconds):.3f} to {max(seconds):.3f}) of {len(seconds)}")
    print(f"device_error to sigkill: {medians['device_error'] / medians['sigkill']:.2f}")


if __name__ == "__main__":
    main()
