"""What the command line and its agent say to each other, over an inherited socketpair, one JSON object a line.

Down: `{"stop": {"signal": 15, "exit_code": 130, "reason": "..."}}`. Up, once: `{"ending": {...}}`, as soon as the agent
knows how the job ends. The end of the socket tells each that the other one is gone.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Stop:
    """To the agent: end. `signal`: what the workers get."""

    signal: int
    exit_code: int
    reason: str

    def encode(self) -> bytes:
        return json.dumps({"stop": asdict(self)}).encode() + b"\n"

    @staticmethod
    def decode(line: bytes) -> Stop:
        return Stop(**json.loads(line)["stop"])


@dataclass(frozen=True)
class Ending:
    """From the agent: how the job ends. `told`: by the orchestrator."""

    exit_code: int
    message: str
    told: bool

    def encode(self) -> bytes:
        return json.dumps({"ending": asdict(self)}).encode() + b"\n"

    @staticmethod
    def decode(line: bytes) -> Ending:
        return Ending(**json.loads(line)["ending"])
