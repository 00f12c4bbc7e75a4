"""Give the detectors of one node of a service something to see: each is simulated where this machine has no such hardware.

nvml: a stand-in for NVIDIA's library, compiled by the test, because no GPU is there (where one is, its library is not asked either).
kernel: a file that an agent finds at /dev/kmsg, in a separate mount namespace, which takes root. The real one does not do: the kernel gives
another facility to what a process writes there, and the detector ignores it. prometheus: a real HTTP server with a page of each
node. command: a program that looks for a file.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.detectors.nvml_node import Gpus, build
from tests.detectors.prometheus_fake import Fake, serving
from tests.integration.processes import wait_until
from tests.integration.service import Service
from tests.integration.training import LONG

from understudy.detectors.nvml_limits import XIDS
from understudy.messages import agents, gpu_evidence, kernel_log, node_programs, policies, prometheus

GPU = "GPU-0 at 00000000:0B:00.0"
RULE = "a node or a part of it that is suspected"  # of the policy that ships
LOUD = {"subject": "device", "part": "fan0", "kind": "loud", "severity": "suspect", "detail": "the fan is loud"}
OVER_KMSG = 'mount --bind "$0" /dev/kmsg && exec "$@"'


def fan(folder: Path, where: str) -> Path:
    """Write a detectors' file with a check that fails on the node for which there is a flag, and reports when the flag is gone. `where`:
    the node, in words of a shell. The check records which process has run it, and with which environment.
    """
    check = folder / "check fan"
    check.write_text(
        f"""#!/bin/sh
echo $PPID >> "{folder}/parents"
env > "{folder}/environment"
flag="{folder}/flag of {where}"
if [ -e "$flag" ]; then echo '{json.dumps([{**LOUD, "for": 3600}])}'; else echo '{json.dumps([{**LOUD, "until": 1}])}'; fi
"""
    )
    check.chmod(0o755)
    file = folder / "detectors.toml"
    words = f'name = "fan"\nargv = [{json.dumps(str(check))}]\nevery = 0.2\noutput = "json"'
    file.write_text(f'off = ["kernel", "nvml"]\n[[command]]\n{words}\n')
    return file


@dataclass
class Around:
    """Where an agent is started: with a command before its own, and variables."""

    command: Sequence[str] = ()
    variables: dict[str, str] = field(default_factory=dict)

    def start(self, command: list[str], folder: Path, environment: dict[str, str], output: Path) -> subprocess.Popen[bytes]:
        with output.open("ab") as file:
            return subprocess.Popen(
                [*self.command, *command],
                cwd=folder,
                env={**environment, **self.variables},
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


class Sight(ABC):
    """Nodes on which one detector looks, each of which may be given something to see."""

    detector: str  # as evidence names it
    kind: str
    part: str
    detail: str

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        """Prepare. Files are in `folder`; processes are ended with `stack`. May skip the test."""
        self.folder, self.stack = folder, stack

    @property
    def why(self) -> str:
        """As the shipped policy has it."""
        return policies.DECIDED(detail=self.detail, detector=self.detector, rule=RULE)

    def begin(self, service: Service, names: str, slots: int) -> None:
        """Start a node of each name, where the detector has looked for the first time: everything that it sees from now on is new."""
        for name in names:
            file, around = self.node(name)
            service.start_agent(name, slots, around, "--detectors", str(file))
        wait_until(lambda: [node["state"] for node in service.get("nodes")] == ["here"] * len(names), "the nodes", LONG)
        for name in names:
            service.wait_for_words(f"agent-{name}.txt", agents.DETECTORS_LOOK(node=name, detectors=f"{self.detector} looks"))

    def _file(self, name: str, text: str) -> Path:
        file = self.folder / f"detectors of {name}.toml"
        file.write_text(text)
        return file

    @abstractmethod
    def node(self, name: str) -> tuple[Path, Around]:
        """Prepare a node with nothing to see yet. Return the detectors' file, and the needs of its agent."""

    @abstractmethod
    def appears(self, name: str) -> None:
        """There is something to see on that node."""


class Passing(Sight):
    """What comes and goes."""

    @abstractmethod
    def goes(self, name: str) -> None:
        """There is nothing to see any more."""


class Gpu(Sight):
    detector, kind, part = "nvml", "xid-79", "gpu0"
    detail: str = gpu_evidence.XID(xid=79, meaning=XIDS[79], gpu=GPU)
    settings = ""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        super().__init__(folder, stack)
        build(folder)
        self.gpus: dict[str, Gpus] = {}

    def node(self, name: str) -> tuple[Path, Around]:
        gpus = self.gpus[name] = Gpus(self.folder, self.folder / f"gpus of {name}")
        for number in (0, 1):
            gpus.healthy(number)
        gpus.lines["order"] = "0 1"
        gpus.write()
        return self._file(name, f'off = ["kernel"]\n{self.settings}'), Around(variables=gpus.variables)

    def appears(self, name: str) -> None:
        self.gpus[name].gpu(0, xids=79)
        self.gpus[name].write()


class Erring(Gpu, Passing):
    """Each error counts for some seconds: more than the time between two looks on a machine that is busy."""

    kind, detail = "nvml-error-999", gpu_evidence.NVML_ERROR(error="Unknown Error", gpu=GPU)
    settings = "[nvml]\nwears_off = 3\n"

    def appears(self, name: str) -> None:
        self.gpus[name].gpu(0, uncorrected="!999")
        self.gpus[name].write()

    def goes(self, name: str) -> None:
        self.gpus[name].gpu(0, uncorrected=0)
        self.gpus[name].write()


class Log(Sight):
    detector, kind, part = "kernel", "xid-79", "pci:0000:01:00.0"
    record = "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus."
    detail: str = kernel_log.RECORD(record=record, again="")

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        super().__init__(folder, stack)
        if why := _no_mounts(folder):
            pytest.skip(why)

    def node(self, name: str) -> tuple[Path, Around]:
        log = self._log(name)
        log.touch()
        return self._file(name, 'off = ["nvml"]\n'), Around(["unshare", "--mount", "sh", "-c", OVER_KMSG, str(log)])

    def appears(self, name: str) -> None:
        self.says(name, self.record)

    def says(self, name: str, *texts: str) -> None:
        """The kernel, now: a record of each."""
        moment = round(time.monotonic() * 1e6)
        with self._log(name).open("a") as log:
            log.write("".join(f"4,1,{moment},-;{text}\n" for text in texts))

    def _log(self, name: str) -> Path:
        return self.folder / f"kmsg of {name}"


class Link(Log, Passing):
    kind, part = "link-down", "eth2"
    text = "mlx5_core 0000:01:00.0 {}: Link {}"
    record = text.format(part, "down")
    detail = kernel_log.RECORD(record=record, again="")

    def goes(self, name: str) -> None:
        self.says(name, self.text.format(self.part, "up"))

    def blinks(self, name: str, interface: str) -> None:
        """It is down, and up again at once."""
        self.says(name, self.text.format(interface, "down"), self.text.format(interface, "up"))


def _no_mounts(folder: Path) -> str:
    """Why an agent cannot find a file at /dev/kmsg here, or ""."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return "a file in place of /dev/kmsg needs root and the command unshare (util-linux)"
    probe = folder / "probe"
    probe.touch()
    done = subprocess.run(["unshare", "--mount", "sh", "-c", OVER_KMSG, str(probe), "true"], capture_output=True, text=True)
    return f"this machine mounts nothing over /dev/kmsg: {done.stderr.strip()}" if done.returncode else ""


class Page(Sight):
    detector, kind, part = "prometheus:dcgm", "xid", "gpu3"
    rules = '{name = "fell-off", sample = "DCGM_FI_DEV_XID_ERRORS", compare = "==", number = 79, subject = "device", kind = "xid"}'
    where = 'exporters = [{{url = "{}/metrics"}}]'
    detail: str = prometheus.FOUND(rule="fell-off", value=79, compare="==", number=79, lasting="", expression="DCGM_FI_DEV_XID_ERRORS")

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        super().__init__(folder, stack)
        self.pages: dict[str, Fake] = {}

    def node(self, name: str) -> tuple[Path, Around]:
        page = self.pages[name] = self.stack.enter_context(serving(Fake()))
        self.says(name, 0)
        where = self.where.format(page.url)
        text = f'off = ["kernel", "nvml"]\n[[prometheus]]\nname = "dcgm"\nevery = 0.2\n{where}\nrules = [{self.rules}]\n'
        return self._file(name, text), Around()

    def appears(self, name: str) -> None:
        self.says(name, 79)

    def says(self, name: str, xid: int) -> None:
        self.pages[name].body = f'DCGM_FI_DEV_XID_ERRORS{{gpu="3",Hostname="{name}"}} {xid}\n'.encode()


class Spike(Page, Passing):
    """Each look counts for some seconds."""

    rules = Page.rules.replace("}", ", until = 3}")

    def goes(self, name: str) -> None:
        self.says(name, 0)


class Asked(Page):
    """The page is that of a server that knows of many nodes."""

    rules = Page.rules.replace("sample =", "query =")
    where = 'server = {{url = "{}"}}'

    def says(self, name: str, xid: int) -> None:
        self.lists(name, (name, xid))

    def lists(self, name: str, *found: tuple[str, int]) -> None:
        """Set the metrics of these nodes for the agent of that node."""
        self.pages[name].vector(*(({"Hostname": other, "gpu": "3"}, str(xid)) for other, xid in found))


class Fan(Passing):
    detector, kind, part, detail = "command:fan", "loud", "fan0", node_programs.FINDING(check="fan", finding="the fan is loud")

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        super().__init__(folder, stack)
        self._all = fan(folder, "$NODE")  # while no process runs the program yet

    def node(self, name: str) -> tuple[Path, Around]:
        return self._all, Around(variables={"NODE": name})

    def appears(self, name: str) -> None:
        (self.folder / f"flag of {name}").touch()

    def goes(self, name: str) -> None:
        (self.folder / f"flag of {name}").unlink()


SIGHTS: dict[str, type[Sight]] = {"nvml": Gpu, "kernel": Log, "prometheus": Page, "command": Fan}
PASSING: dict[str, type[Passing]] = {"nvml": Erring, "kernel": Link, "prometheus": Spike, "command": Fan}
