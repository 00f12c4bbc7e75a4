"""The systems that are compared: how each starts the training, and what a fault is for it. One small class each, with the same methods.

To add one: write an entry (see `entry_plain.py`) that runs `Training` and writes to the log, and a class here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PEERS_PYTHON = ROOT / ".venv-peers" / "bin" / "python"  # of `make peers`


@dataclass(frozen=True)
class Training:
    """The training of all systems, with the same arguments."""

    model: str
    ranks: int
    steps: int
    seed: int
    batch: int
    faults: int
    usual: int  # steps between checkpoints, by default
    tuned: int  # the optimum for this rate of faults


class System(ABC):
    name: str
    about: str
    planned = False  # a fault is a request to move a rank, not a kill

    def __init__(self, training: Training, folder: Path) -> None:
        self.training, self.folder = training, folder
        self.log = folder / "log.jsonl"

    @classmethod
    def why_not(cls) -> str:
        """Return why it cannot run on this machine; "" if it can."""
        return ""

    @classmethod
    def version(cls) -> str:
        return f"torch {version('torch')}"

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command that starts the whole job."""

    def environment(self) -> dict[str, str]:
        """Beyond the usual one."""
        return {}

    def strike(self, rank: int, pid: int) -> None:
        """Inject the fault: `pid` is the process of `rank`."""
        process = os.pidfd_open(pid)  # refuses what is no process id, where kill(2) would signal a group
        signal.pidfd_send_signal(process, signal.SIGKILL)
        os.close(process)

    def arguments(self) -> list[str]:
        """Return the arguments of the entry."""
        t = self.training
        settings = {
            "--model": t.model,
            "--steps": t.steps,
            "--seed": t.seed,
            "--batch": t.batch,
            "--record": self.log,
            "--folder": self.folder,
        }
        return [str(part) for setting in settings.items() for part in setting]

    def start(self) -> subprocess.Popen[bytes]:
        self.folder.mkdir(parents=True)
        paths = [str(ROOT / "src"), str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")]
        base = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "OMP_NUM_THREADS": "1",
            "PEERS_RANKS": str(self.training.ranks),
        }
        with (self.folder / "output.log").open("wb") as output:
            return subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**base, **self.environment()},
            )


class Ideal(System):
    name = "ideal"
    about = "plain torchrun; no faults happen to it"

    def command(self) -> list[str]:
        return [*self.torchrun(), "-m", "peers.entry_plain", *self.arguments()]

    def torchrun(self) -> list[str]:
        return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(self.training.ranks)]


class Restart(Ideal):
    name = "restart"
    about = "torchrun --max-restarts; rank 0 writes the whole state with torch.save at a fixed interval"
    checkpoints = "whole"

    def torchrun(self) -> list[str]:
        return [*super().torchrun(), "--max-restarts", str(self.training.faults + 1), "--monitor-interval", "0.1"]

    def arguments(self) -> list[str]:
        return [*super().arguments(), "--every", str(self.every()), "--checkpoints", self.checkpoints]

    def every(self) -> int:
        return self.training.usual

    def environment(self) -> dict[str, str]:
        return {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # or restarted workers read the addresses of dead ones, and Gloo never meets


class TunedRestart(Restart):
    name = "restart-tuned"
    about = "torchrun --max-restarts; asynchronous torch.distributed.checkpoint at the interval that is best for this rate of faults"
    checkpoints = "distributed"

    def every(self) -> int:
        return self.training.tuned


class Understudy(System):
    name = "understudy"
    about = "understudy run with one spare; a worker is killed"

    def spares(self) -> list[str]:
        return ["--spares", "1"]

    @classmethod
    def version(cls) -> str:
        return f"understudy {version('understudy')}, {super().version()}"

    def command(self) -> list[str]:
        options = ["--run-dir", str(self.folder / "run"), "--nproc-per-node", str(self.training.ranks)]
        command = [sys.executable, "-m", "understudy.cli", "run", "--drill", "off", *options, *self.spares()]
        return [*command, "-m", "peers.entry_understudy", *self.arguments()]


class UnderstudyPrepared(Understudy):
    name = "understudy-prepared"
    about = "the same with a spare that is prepared for each rank, and one more; a worker is killed"

    def spares(self) -> list[str]:
        return ["--spares", str(self.training.ranks + 1), "--prepare", str(self.training.ranks)]


class UnderstudyPlanned(Understudy):
    name = "understudy-planned"
    about = "understudy run with one spare; a rank is moved with `understudy migrate`"
    planned = True

    def strike(self, rank: int, pid: int) -> None:
        command = [sys.executable, "-m", "understudy.cli", "migrate", "--run-dir", str(self.folder / "run"), "--rank", str(rank)]
        with (self.folder / "migrate.log").open("ab") as output:
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)


class Peer(System):
    """A system with its own packages, in the environment that `make peers` sets up."""

    package: str
    module: str

    @classmethod
    def why_not(cls) -> str:
        if not PEERS_PYTHON.exists():
            return "there is no .venv-peers; `make peers` sets it up"
        command = [str(PEERS_PYTHON), "-c", f"import {cls.module}"]
        tried = subprocess.run(command, capture_output=True, text=True)
        return f"{cls.package} cannot be imported: {tried.stderr.strip().splitlines()[-1]}" if tried.returncode else ""

    @classmethod
    def version(cls) -> str:
        asked = ", ".join(f"version('{package}')" for package in (cls.package, "torch"))
        command = [str(PEERS_PYTHON), "-c", f"from importlib.metadata import version; print({asked}, sep=', torch ')"]
        return f"{cls.package} {subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()}"

    def command(self) -> list[str]:
        return [str(PEERS_PYTHON), "-m", self.launcher, *self.arguments()]

    launcher: str


class TorchFT(Peer):
    name = "torchft"
    about = "TorchFT over Gloo, its hook repaired (entry_torchft.py), timeouts tuned; a killed replica is started again at once"
    package, module, launcher = "torchft", "torchft", "peers.launch_torchft"


class NVRx(Peer):
    name = "nvrx"
    about = "in-process restart of nvidia-resiliency-ext with a reserve rank for each fault, intervals tuned, the usual checkpoints"
    package, module, launcher = "nvidia-resiliency-ext", "nvidia_resiliency_ext.inprocess", "peers.launch_nvrx"

    def arguments(self) -> list[str]:
        return [*super().arguments(), "--every", str(self.training.usual)]

    def environment(self) -> dict[str, str]:
        quiet = {"TORCH_CPP_LOG_LEVEL": "ERROR"}  # it warns of its waits of a tenth of a second, with two lines each
        return {"PEERS_RESERVES": str(max(1, self.training.faults)), **quiet}


SYSTEMS: dict[str, type[System]] = {
    system.name: system for system in (Ideal, Restart, TunedRestart, TorchFT, NVRx, Understudy, UnderstudyPrepared, UnderstudyPlanned)
}
