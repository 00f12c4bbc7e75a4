"""Measure what a recovery costs depending on how process groups are joined again: the same communicator, by torch's `_reconfigure` (torch
2.14 and newer), or a new one in its place.

    python benchmarks/rejoining.py --ranks 2,4,8 --joins 40 --kills 6 --json rejoining.json

First groups alone: in every generation all members release a Gloo group (abort, drain), join it again and add up once; shown are the
time from the beginning of the join to the end of the first sum, and what the last generation has left open. Then whole recoveries, as
`benchmarks/recovery.py` measures them. Both ways take turns, a few joins or kills at a time, so that a machine that is faster or slower
from one minute to the next is so for both.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import evidence

WAYS = {"in place": "1", "new": "0"}
ROUNDS = 4
ROWS = ("report attach", "report total", "kill to next step")


def member(rank: int, size: int, address: str, joins: int) -> None:
    """Run one rank of a group; print its figures as JSON."""
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import PrefixStore

    from understudy.worker.transport.groups import Groups
    from understudy.worker.transport.rendezvous import Rendezvous

    class Meetings(Rendezvous):
        def enter(self, generation: int) -> Rendezvous:
            self.generation, self.store = generation, PrefixStore(f"g{generation}", self._client)
            return self

    groups, meetings, words = Groups(), Meetings(address, 0, lambda: False), Rendezvous(address, 1 << 40, lambda: False)
    groups.install()
    dist.init_process_group("gloo", store=meetings.store, rank=rank, world_size=size)

    def together(what: str) -> None:
        words.put(f"{what}/{rank}", b"")
        for other in range(size):
            words.get(f"{what}/{other}")

    seconds = []
    for generation in range(1, joins + 1):
        together(f"through {generation}")
        groups.abort()
        groups.drain()
        groups.stop_waking()
        meeting = meetings.enter(generation)
        together(f"let go {generation}")
        begin = time.perf_counter()
        groups.adopt(groups.connect(rank, meeting), meeting)
        dist.all_reduce(torch.zeros(1))
        seconds.append(time.perf_counter() - begin)
    together("end")
    found = {kind: len(os.listdir(f"/proc/self/{kind}")) for kind in ("fd", "task")}
    print(json.dumps({"seconds": seconds, **found}), flush=True)
    os._exit(0)


def join(way: str, size: int, joins: int) -> dict[str, Any]:
    """Return rank 0's figures."""
    from understudy.worker.transport.rendezvous import StoreServer

    server = StoreServer("127.0.0.1")
    command = [sys.executable, __file__, "--member"]
    environment = {**os.environ, "UNDERSTUDY_REJOIN": WAYS[way], "OMP_NUM_THREADS": "1"}
    members = [
        subprocess.Popen([*command, json.dumps([rank, size, server.address, joins])], env=environment, stdout=subprocess.PIPE)
        for rank in range(size)
    ]
    outputs = [process.communicate()[0] for process in members]
    if any(process.returncode for process in members):
        raise SystemExit("a member has failed")
    return json.loads(outputs[0])  # type: ignore[no-any-return]


def groups(sizes: list[int], joins: int, console: Console, write: str) -> list[dict[str, Any]]:
    table = Table("ranks", *(f"{way}, ms" for way in WAYS), "new / in place", *(f"{way}: file descriptors, threads" for way in WAYS))
    rows = []
    for size in sizes:
        found: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
        for _ in range(ROUNDS):
            for way, runs in found.items():
                runs.append(join(way, size, joins))
        seconds = {way: [value for run in runs for value in run["seconds"][1:]] for way, runs in found.items()}
        medians = {way: statistics.median(values) for way, values in seconds.items()}
        left = {way: f"{runs[-1]['fd']}, {runs[-1]['task']}" for way, runs in found.items()}
        ratio = medians["new"] / medians["in place"]
        table.add_row(str(size), *(f"{1000 * value:.1f}" for value in medians.values()), f"{ratio:.2f}", *left.values())
        rows.append({"ranks": size, "seconds": seconds, "medians": medians, "ratio": ratio, "left": left})
    console.print(table)
    if write:
        evidence.write_table(write, table)
    return rows


def recoveries(kills: int, ranks: int, console: Console, write: str) -> dict[str, Any]:
    from recovery import measure, record

    found: dict[str, dict[str, list[float]]] = {way: {} for way in WAYS}
    runs = []
    for number in range(ROUNDS):
        for way, switch in WAYS.items():
            os.environ["UNDERSTUDY_REJOIN"] = switch
            arguments = argparse.Namespace(kills=max(1, kills // ROUNDS), ranks=ranks, spares=1, seed=number)
            with tempfile.TemporaryDirectory(prefix="understudy-rejoining-") as folder:
                result = measure("ddp", "small", arguments, Path(folder) / "job")
            runs.append(record([result], arguments))
            for name, values in result.rows().items():
                found[way].setdefault(name, []).extend(values)
    table = Table(f"ddp, small model, {ranks} ranks", *(f"{way}, s (min to max)" for way in WAYS), "new / in place")
    for name in ROWS:
        medians = [statistics.median(found[way][name]) for way in WAYS]
        cells = [
            f"{median:.3f} ({min(found[way][name]):.3f} to {max(found[way][name]):.3f})" for way, median in zip(WAYS, medians, strict=True)
        ]
        table.add_row(name, *cells, f"{medians[1] / medians[0]:.2f}")
    console.print(table)
    if write:
        evidence.write_table(f"{write}-recovery", table)
    return {"rows": found, "runs": runs}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how groups are reconnected: in place, or with a new communicator.")
    parser.add_argument("--ranks", default="2,4,8", help="sizes of groups, by comma")
    parser.add_argument("--joins", type=int, default=40, help="joins of a group in each of four turns")
    parser.add_argument("--kills", type=int, default=8, help="whole recoveries of each way, in four turns; 0: none")
    parser.add_argument("--job-ranks", type=int, default=4, help="ranks of the job that recovers")
    parser.add_argument("--json", default="", help="file for all figures")
    evidence.add_option(parser, "join")
    parser.add_argument("--member", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.member:
        member(*json.loads(args.member))
    from understudy.worker.transport.backends import rejoining

    if not rejoining.available():
        raise SystemExit("this torch has no _reconfigure: 2.14 or newer is needed")
    console = Console(width=120)
    found: dict[str, Any] = {"groups": groups([int(size) for size in args.ranks.split(",")], args.joins, console, args.write)}
    if args.kills:
        found["recoveries"] = recoveries(args.kills, args.job_ranks, console, args.write)
    if args.json:
        Path(args.json).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
