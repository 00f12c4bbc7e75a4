"""What a `Backend` promises, on three real processes: they add up, one of them is killed while the others wait for it in a sum, the others
abort, drain and connect again with one that was made without peers, in the same group; then one aborts a sum that no other joins.

`python -m tests.contract.backend NAME` shows it for a backend of this machine, without pytest.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.integration.processes import LIMIT, marked
from understudy.common.page_view import UNKNOWN
from understudy.worker.errors import PeerLost
from understudy.worker.transport.rendezvous import Rendezvous, StoreServer

ROOT = Path(__file__).parents[2]
SIZE, LOST = 3, 2  # members; which of them is killed


@dataclass(frozen=True)
class Kind:
    """`shows`: whether `Communicator.is_broken` reports a lost peer."""

    name: str
    device: str = "cpu"
    shows: bool = True

    def why_not(self) -> str:
        """Why it cannot be tried on this machine, or ""."""
        if self.device == "cuda" and not (torch.cuda.is_available() and dist.is_nccl_available()):
            return f"{self.name} needs a GPU and a torch that was built with NCCL"
        if self.name == "nccl2" and not hasattr(dist, "ProcessGroupNCCL2"):
            return "nccl2 needs torch 2.14 or newer"
        return ""


KINDS = [Kind("gloo"), Kind("nccl", "cuda", shows=False), Kind("nccl2", "cuda", shows=False)]


def broken_promises(kind: Kind, path: str = "") -> list[str]:
    """What `kind` does not do as it should. `path`: a folder in which its package is."""
    server = StoreServer("127.0.0.1")
    words = Rendezvous(server.address, 100, lambda: False)
    with marked() as mark:

        def start(rank: int, newcomer: bool) -> subprocess.Popen[str]:
            paths = [path, str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
            more = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
            if kind.device == "cuda" and torch.cuda.device_count() < SIZE:  # NCCL refuses two ranks of one host on one GPU
                more["NCCL_HOSTID"] = f"rank-{rank}-{int(newcomer)}"
            words_to_it = [str(rank), server.address, kind.name, kind.device, str(int(newcomer)), str(int(kind.shows))]
            return subprocess.Popen(
                [sys.executable, "-m", "tests.contract.member", *words_to_it],
                cwd=ROOT,
                env=mark.environment(**more),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )

        members = [start(rank, newcomer=False) for rank in range(SIZE)]
        newcomer = start(LOST, newcomer=True)
        try:
            for rank in range(SIZE):
                words.get(f"ready/{rank}", timedelta(seconds=LIMIT))
        except PeerLost:
            return [f"not all members have reached a sum: {_errors([*members, newcomer])}"]
        members[LOST].send_signal(signal.SIGKILL)
        members[LOST].communicate()
        words.put("lost", b"")
        members[LOST] = newcomer
        broken = []
        for rank, member in enumerate(members):
            try:
                output, errors = member.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                return [f"rank {rank} does not come to its end: {_errors(members)}"]
            if member.returncode:
                broken.append(f"rank {rank} fails: {errors[-3000:]}")
                continue
            broken += [f"rank {rank}: {text}" for text in _judged(rank, json.loads(output.splitlines()[-1]))]
    return broken


def _judged(rank: int, found: dict[str, Any]) -> Iterator[str]:
    everybody = [float(sum(range(1, SIZE + 1)))] * 4
    if found["place"] != [rank, SIZE]:
        yield f"its group says that it is rank and size {found['place']}" + " (detached)" * (rank == LOST)
    if found["first"] != ([LOST + 1.0] * 4 if rank == LOST else everybody):
        yield f"the first sum is {found['first']}" + " (detached)" * (rank == LOST)
    if found["again"] != everybody:
        yield f"the sum after a new one has connected is {found['again']}"
    if not found["same group"] or not found["unbroken"]:
        yield "what was connected again is not in the same group, or is broken"
    if found["collectives"] < 1 or found["end"]:
        yield f"there were {found['collectives']} collectives on it, and {found['end']} after it was dropped"
    if rank == LOST:
        return
    if not found["failure"]:
        yield "the error of an operation whose peer is lost is not recognized as that"
    if not found["untouched"]:
        yield "something was written into a tensor after the drain"
    if found["waits"] != UNKNOWN and found["waits"] < 1:
        yield f"a thread waits for a peer, and {found['waits']} waits are counted"


def _errors(members: list[subprocess.Popen[str]]) -> str:
    for member in members:
        member.kill()
    return "\n".join(member.communicate()[1][-2000:] for member in members)


if __name__ == "__main__":
    sys.exit("; ".join(broken_promises(next(kind for kind in KINDS if kind.name == sys.argv[1]))) or 0)
