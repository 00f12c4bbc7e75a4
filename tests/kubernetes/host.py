"""Disturb a node of the test cluster from outside: switch it off and on, kill its kubelet, pull its cable.

None of this sends any notice. The actions of an operator through the API are in `operators.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from tests.faults.harness import ROOT
from tests.integration.processes import send, wait_until
from tests.kubernetes.control_plane import PORT, TOKEN, ControlPlane
from tests.kubernetes.kubelet import Configuration
from tests.kubernetes.network import BRIDGE, PREFIX, Switch, bridge, ip, plug
from understudy.common.dying import dying_with

LIMIT = 120.0
CAPACITY = {"cpu": "8", "memory": "4Gi", "pods": "64", "nvidia.com/gpu": "4"}


def needed() -> list[str]:
    """Folders that every container sees as they are, so that this Python and this project are there; the outer ones."""
    found = {ROOT, ROOT.resolve(), Path(sys.prefix), Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
    return sorted(str(path) for path in found if not any(path != other and path.is_relative_to(other) for other in found))


def variables() -> dict[str, str]:
    """In the environment of every container, in place of an image's."""
    return {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]),
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "HOME": "/root",
        "OMP_NUM_THREADS": "1",
        "UNDERSTUDY_DRILL": "off",
    }


class Node:
    """Off until it is switched on. `number`: 1 to 15."""

    def __init__(self, folder: Path, plane: ControlPlane, switch: Switch, name: str, number: int) -> None:
        self.name = name
        self.folder = folder / "nodes" / name
        self.address = switch.addresses.node(number)
        self._switch = switch
        self._process: subprocess.Popen[bytes] | None = None
        self._kubelet: subprocess.Popen[bytes] | None = None
        for part in ("pods", "layers"):
            (self.folder / part).mkdir(parents=True)
        configuration = Configuration(
            name=name,
            address=self.address,
            folder=str(self.folder),
            server=plane.address,
            port=PORT,
            authority=str(plane.folder / "ca.crt"),
            token=TOKEN,
            capacity=CAPACITY,
            variables={**variables(), "KUBERNETES_SERVICE_HOST": plane.address, "KUBERNETES_SERVICE_PORT": str(PORT)},
            needed=needed(),
            images=str(folder / "images"),
        )
        (self.folder / "configuration.json").write_text(json.dumps(asdict(configuration)))

    @property
    def pid(self) -> int:
        """Of its first process, as this machine counts."""
        assert self._process is not None
        return _child(self._process)

    @property
    def is_on(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def on(self) -> None:
        """With its kubelet. What ran on it when it was switched off does not; its disk is as it was."""
        self.begin()
        self.finish()

    def begin(self) -> None:
        """The first half of `on`, which does not wait, so that several nodes can be switched on at once."""
        (self.folder / "up").unlink(missing_ok=True)
        words = ["unshare", "--mount", "--pid", "--uts", "--net", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
        words += [sys.executable, "-I", "-S", str(Path(__file__).with_name("node.py")), self.name, str(self.folder)]
        dies = dying_with(os.getpid(), signal.SIGKILL)  # with the tests, and everything on it with it
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True, preexec_fn=dies)

    def finish(self) -> None:
        wait_until(self._up, f"node {self.name}", LIMIT)
        bridge(self.pid)
        plug(self.pid, "uplink", self._switch.pid, self.name)
        ip("link", "set", "uplink", "master", BRIDGE, "up", inside=self.pid)
        ip("addr", "add", f"{self.address}/{PREFIX}", "dev", BRIDGE, inside=self.pid)
        self.start_kubelet()

    def _up(self) -> bool:
        assert self.is_on, (self.folder / "log").read_text()
        return (self.folder / "up").exists()

    def off(self) -> None:
        """As when the power fails."""
        if self.is_on:
            assert self._process is not None
            with contextlib.suppress(IndexError):
                send(self.pid, signal.SIGKILL)
            self._process.wait(LIMIT)
        if self._kubelet is not None:
            self._kubelet.wait(LIMIT)

    @property
    def has_kubelet(self) -> bool:
        return self._kubelet is not None and self._kubelet.poll() is None

    def start_kubelet(self) -> None:
        words = self.command(sys.executable, "-m", "tests.kubernetes.kubelet", str(self.folder / "configuration.json"))
        with (self.folder / "log").open("ab") as log:
            self._kubelet = subprocess.Popen(words, env={**os.environ, **variables()}, stdout=log, stderr=log, start_new_session=True)

    def kill_kubelet(self) -> None:
        """Its pods run on."""
        assert self._kubelet is not None
        send(_child(self._kubelet), signal.SIGKILL)
        self._kubelet.wait(LIMIT)

    def cut(self) -> None:
        """Nothing comes in or out; its pods reach each other."""
        ip("link", "set", self.name, "down", inside=self._switch.pid)

    def heal(self) -> None:
        ip("link", "set", self.name, "up", inside=self._switch.pid)

    def command(self, *words: str) -> list[str]:
        """For `subprocess`: `words`, run on the node."""
        return ["nsenter", "--target", str(self.pid), "--mount", "--pid", "--uts", "--net", *words]

    def forget_ended(self) -> None:
        """Removes from its disk what pods that are over have left."""
        for pod in (self.folder / "pods").iterdir():
            if (pod / "over").exists():
                shutil.rmtree(pod)


def _child(process: subprocess.Popen[bytes]) -> int:
    (found,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(found)
