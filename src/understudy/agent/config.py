"""The agent's configuration from `understudy run`: one value, as JSON in the run directory."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from understudy.core.model import Timeouts

WORKER_COMMAND = (sys.executable, "-u", "-m", "understudy.worker")


@dataclass(frozen=True)
class AgentConfig:
    job: str  # its name at the orchestrator
    run_dir: Path
    node: str
    node_rank: int
    address: str  # where other nodes reach this node's workers
    program: tuple[str, ...]  # the script or "-m", "module", and its arguments
    workers_per_node: int
    spares: int = -1  # wanted on this node; -1: its share of the job's
    claim: int = -1  # the number of the claim that this node serves; -1: none
    streams: bool = False  # workers' output goes to the orchestrator instead of this process's stdout and stderr
    domain: str = ""  # the nodes that fail together with this one: a rack, a switch; empty: none
    labels: tuple[tuple[str, str], ...] = ()  # labels of its place in the network (`core.topology`)
    timeouts: Timeouts = field(default_factory=Timeouts)
    orchestrator: str = ""  # its URL; empty: it runs on this node and writes its URL into the run directory
    certificate: str = ""  # the certificate to trust, for https
    role: str = "default"
    looks: bool = True  # whether detectors run here; false: the node's own agent runs them
    detectors: str = ""  # the text of their file (`detectors.choice`); empty: none
    began: float = 0.0  # unix time at which the job began on this node; 0: now
    shown_local_ranks: tuple[int, ...] | None = None  # None: all
    redirects: tuple[tuple[int, int], ...] = ()  # (local rank or -1 for all, 1 stdout | 2 stderr): not on the terminal
    tees: tuple[tuple[int, int], ...] = ()  # same form: also into torchrun's files below `log_dir`
    log_dir: str = ""  # torchrun's files go here; empty: none
    signals: str = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"  # those that end the job in order, for torchrun's environment
    worker_command: tuple[str, ...] = WORKER_COMMAND  # tests use a stand-in

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(self.as_dict(), indent=1))

    def as_dict(self) -> dict[str, object]:
        """Return JSON values. Not by pydantic, which rejects bytes of arguments and paths that are not UTF-8 (PEP 383)."""
        found: dict[str, object] = json.loads(json.dumps(asdict(self), default=str))
        return found

    @staticmethod
    def of(text: str) -> AgentConfig:
        return _ADAPTER.validate_python(json.loads(text))

    @staticmethod
    def read(path: Path) -> AgentConfig:
        return AgentConfig.of(path.read_text())

    def with_(self, **changes: object) -> AgentConfig:
        return _ADAPTER.validate_python({**asdict(self), **changes})


def instance(run_dir: Path) -> str:
    """Return an identity that is the same for every agent in this run directory, and for no other."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    text = f"{platform.node()} {boot.read_text().strip() if boot.exists() else ''} {run_dir}"
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]


_ADAPTER = TypeAdapter(AgentConfig)
