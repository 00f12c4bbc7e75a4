"""The messages between the command line and its agent, over an inherited socketpair, one JSON object a line.

Down: `{"stop": {"signal": 15, "exit_code": 130, "reason": "..."}}`, and any number of times `{"notice": {"signal": 10}}` and
`{"unled": {"world_size": 8}}`. Up, once:
`{"ending": {...}}`, as soon as the agent knows how the job ends. The end of the socket shows each that the other one is gone.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Stop:
    """To the agent: end. `signal`: is sent to the workers."""

    signal: int
    exit_code: int
    reason: str

    def encode(self) -> bytes:
        return json.dumps({"stop": asdict(self)}).encode() + b"\n"


@dataclass(frozen=True)
class Notice:
    """To the agent: pass a signal on to the script while the job continues. Schedulers send one before a time limit."""

    signal: int

    def encode(self) -> bytes:
        return json.dumps({"notice": asdict(self)}).encode() + b"\n"


@dataclass(frozen=True)
class Unled:
    """To the agent: the job's orchestrator cannot be started at present. `world_size`: of the job, whose end the agent may have to
    detect.
    """

    world_size: int

    def encode(self) -> bytes:
        return json.dumps({"unled": asdict(self)}).encode() + b"\n"


def decode(line: bytes) -> Stop | Notice | Unled:
    """Decode a message to the agent."""
    found = json.loads(line)
    if "unled" in found:
        return Unled(**found["unled"])
    return Notice(**found["notice"]) if "notice" in found else Stop(**found["stop"])


@dataclass(frozen=True)
class Ending:
    """From the agent: how the job ends. `told`: the orchestrator has reported it."""

    exit_code: int
    message: str
    told: bool

    def encode(self) -> bytes:
        return json.dumps({"ending": asdict(self)}).encode() + b"\n"

    @staticmethod
    def decode(line: bytes) -> Ending:
        return Ending(**json.loads(line)["ending"])
