"""Read NCCL's own view (RAS) of the jobs on a node: a rank that all others wait for, and a process that does not answer NCCL any more.

Since NCCL 2.24 a thread in each process exchanges progress with the others, and the first process of a node listens at
NCCL_RAS_ADDR (localhost:28028). From 2.28.7 on it answers in JSON: for each communicator and rank its host, pid, device and the number of
collectives that it has started. A look reads that, and gives evidence of ranks on this node only, since the agent of each node looks.
Each query passes through all processes of the job, so the detector runs only where an operator's file enables it, and seldom.

A rank is behind if nothing in its communicator has moved for `STILL` seconds, all other ranks have started the same number of
collectives, and it has started fewer. All evidence is a note: `hang` ends a worker, by its own limits, and this shows a person NCCL's view,
also where waits are not known.

Known limits: tried with answers recorded from NCCL 2.28.9. That a rank lags was judged from such answers only. One job at an
address: of several on a node only the first is seen. Counts of sends and receives are not compared, since they differ among
healthy ranks. A rank outside of the agent's process namespace cannot be distinguished from one that has ended.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import psutil
from pydantic import BaseModel, Field, ValidationError

from understudy.common.bounds import plain
from understudy.detectors.base import Evidence, NodeDetector, Severity, Subject
from understudy.messages import nccl_evidence
from understudy.messages.base import Text

ADDRESS_VARIABLE = "NCCL_RAS_ADDR"
ADDRESS = "localhost:28028"
QUESTION = b"SET FORMAT json\nVERBOSE STATUS\n"
PATIENCE = 10.0  # seconds; NCCL waits 5 for the other processes
LONGEST = 1 << 26  # bytes of an answer: some hundred thousand ranks
STILL = 60.0
HOLDS = 600.0
MOST = 16  # pieces of evidence per look

Number = Annotated[int, Field(ge=0, lt=1 << 63)]


class _Status(BaseModel):
    unresponsive: bool = False
    considered_dead: bool = False


class Rank(BaseModel):
    rank: Number
    host: Annotated[str, Field(max_length=256)] = ""
    pid: Number = 0
    nvml_dev: int = -1
    status: _Status = _Status()
    collective_counts: dict[str, Number] = {}  # pydantic copies it

    @property
    def issued(self) -> int:
        """The number of collectives that all ranks of a communicator start alike."""
        return sum(count for name, count in self.collective_counts.items() if name not in ("Send", "Recv"))


class Communicator(BaseModel):
    hash: Annotated[str, Field(max_length=64)]
    secondary_hash: Annotated[str, Field(max_length=128)] = ""
    ranks: list[Rank] = []
    missing_ranks: list[Rank] = []


class Answer(BaseModel):
    communicators: list[Communicator]


def parse(text: str) -> Answer:
    """Parse NCCL's answer. Raises `ValueError` if it is not one."""
    begin = max(0, text.find("{"))  # before it comes an OK about the format
    try:
        found = json.loads(text[begin:])
    except ValueError:  # 2.28.9 leaves out a comma before the status of a missing rank
        found = json.loads(re.sub(r'([\d"el])(\s*\n\s*"[^"\n]*"\s*:)', r"\1,\2", text[begin:]))
    return Answer.model_validate(found)


def ask(address: str) -> str:
    """Return NCCL's answer; "" if no process listens. Raises `OSError` if it does not end."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + PATIENCE
    try:
        connection = socket.create_connection((host.strip("[]") or "localhost", int(port)), timeout=PATIENCE)
    except ConnectionRefusedError:
        return ""
    with connection:
        connection.sendall(QUESTION)
        answer = bytearray()
        while len(answer) <= LONGEST:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
            if not (data := connection.recv(1 << 16)):
                break
            answer += data
    return answer.decode(errors="replace")


def own_addresses() -> set[str]:
    return {one.address for each in psutil.net_if_addrs().values() for one in each} | {socket.gethostname()}


@dataclass
class _Seen:
    """The last look at a communicator."""

    counts: Mapping[int, int]
    since: float  # unix time since which the counts have not changed


class NcclRas(NodeDetector):
    name = "nccl-ras"
    every = 60.0

    def __init__(
        self,
        address: str = "",
        *,
        ask: Callable[[str], str] = ask,
        clock: Callable[[], float] = time.time,
        here: Callable[[], Collection[str]] = own_addresses,
        is_there: Callable[[int], bool] = psutil.pid_exists,
    ) -> None:
        """Prepare the detector. `here`: the names of this host for others. `is_there`: whether a process exists."""
        self._address = address or os.environ.get(ADDRESS_VARIABLE, "") or ADDRESS
        self._ask, self._clock, self._here, self._is_there = ask, clock, here, is_there
        self._seen: dict[tuple[str, str], _Seen] = {}

    @classmethod
    def missing(cls, devices: Path = Path("/dev")) -> str:
        return "" if any(devices.glob("nvidia[0-9]*")) or (devices / "kfd").exists() else nccl_evidence.RAS_NO_GPU()

    def look(self) -> list[Evidence]:
        now = self._clock()
        try:
            text = self._ask(self._address)
        except OSError:
            return []  # it ends, or is busy: the next look will show
        if not text:
            self._seen.clear()
            return []
        try:
            answer = parse(text)
        except (ValueError, RecursionError) as error:
            reason = "an unknown form" if isinstance(error, ValidationError) else plain(text[:80])
            detail = nccl_evidence.RAS_NOT_READ(address=self._address, answer=reason)
            return [Evidence(self.name, Subject.NODE, "", Severity.NOTE, detail, now, "ras-not-read", "", now + HOLDS)]
        here, found = set(self._here()), list[Evidence]()
        before, self._seen = self._seen, {}
        for one in answer.communicators:
            key = one.hash, one.secondary_hash
            counts = {each.rank: each.issued for each in one.ranks}
            same = key in before and before[key].counts == counts
            seen = self._seen[key] = before[key] if same else _Seen(counts, now)
            last = behind(one)
            if last is not None and now - seen.since >= STILL and last.host in here:
                others = len(counts) - 1
                most = max(counts.values())
                words = {"rank": last.rank, "communicator": plain(one.hash), "pid": last.pid, "others": others}
                detail = nccl_evidence.RAS_BEHIND(**words, issued=last.issued, most=most, seconds=now - seen.since)
                found.append(self._evidence("nccl-rank-behind", last, detail, seen.since, now))
            for each in one.missing_ranks:
                if each.host in here and each.pid and self._is_there(each.pid):
                    detail = nccl_evidence.RAS_UNRESPONSIVE(rank=each.rank, communicator=plain(one.hash), pid=each.pid)
                    found.append(self._evidence("nccl-rank-unresponsive", each, detail, now, now))
        return found[:MOST]

    def _evidence(self, kind: str, rank: Rank, detail: Text, happened: float, now: float) -> Evidence:
        if rank.nvml_dev < 0:
            return Evidence(self.name, Subject.NODE, "", Severity.NOTE, detail, happened, kind, "", now + HOLDS)
        return Evidence(self.name, Subject.DEVICE, "", Severity.NOTE, detail, happened, kind, f"gpu{rank.nvml_dev}", now + HOLDS)


def behind(communicator: Communicator) -> Rank | None:
    """Return the one rank that has started fewer collectives than all others, which have started the same number."""
    if len(communicator.ranks) < 2:
        return None
    fewest = min(communicator.ranks, key=lambda one: one.issued)
    others = {one.issued for one in communicator.ranks if one is not fewest}
    return fewest if len(others) == 1 and fewest.issued < min(others) else None
