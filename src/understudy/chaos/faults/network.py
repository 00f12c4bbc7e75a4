"""Faults of the network: packets of a worker's or a node's TCP connections are dropped, in one direction or both, or slowed down.

They use rules of nftables in the network namespace of the target, for the ports of its sockets and for nothing else; ports that it opens
later are added. The rules are in a table that belongs to one process (`flags owner`), so the kernel removes them when that
process ends, however it ends.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

from understudy.chaos.base import SECONDS, Fault, Hits, Outcome, Parameter, Undo, Values, Victim
from understudy.messages import faults

LOOK = 0.05  # seconds between two searches for new ports
START = 10.0  # seconds that nft may take
_DIRECTIONS = ("both", "in", "out")


def why_not() -> str:
    if shutil.which("nft") is None or shutil.which("nsenter") is None:
        return faults.NO_NFT()
    if os.geteuid() != 0:
        return faults.NOT_ROOT()
    return ""


def ports(pids: tuple[int, ...]) -> set[int]:
    """Return the local TCP ports of these processes, which share a network namespace."""
    inodes = set()
    for pid in pids:
        try:
            for descriptor in os.listdir(f"/proc/{pid}/fd"):
                target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
        except OSError:
            continue  # it ended, or this descriptor was closed: the next search sees the rest
    found = set()
    for table in ("tcp", "tcp6"):
        for line in _lines(Path(f"/proc/{pids[0]}/net/{table}")):
            fields = line.split()
            if fields[9] in inodes:
                found.add(int(fields[1].rpartition(":")[2], 16))
    return found


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()[1:]
    except OSError:
        return []


class Rules:
    """A table of rules for the ports of some processes. It stays until `remove`."""

    def __init__(self, pids: tuple[int, ...], direction: str, verdict: str) -> None:
        self._pids = pids
        self._name = f"understudy_chaos_{os.getpid()}_{pids[0]}"
        self._namespace = ["nsenter", f"--net=/proc/{pids[0]}/ns/net"]
        self._known: set[int] = set()
        self._over = threading.Event()
        lines = [f"add table inet {self._name} {{ flags owner; }}", f"add set inet {self._name} ports {{ type inet_service; }}"]
        for hook, port in (("input", "dport"), ("output", "sport")):
            if direction == "both" or hook.startswith(direction):
                lines.append(f"add chain inet {self._name} {hook} {{ type filter hook {hook} priority 0; }}")
                lines.append(f"add rule inet {self._name} {hook} tcp {port} @ports {verdict}")
        command = [*self._namespace, "nft", "-i"]
        self._owner = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            self._tell(*lines)
            self._look()
            self._wait_until_there()
        except BaseException:  # including Ctrl-C
            self._owner.kill()
            self._owner.wait()
            raise
        self._thread = threading.Thread(target=self._follow, name="chaos-ports", daemon=True)
        self._thread.start()

    def _tell(self, *lines: str) -> None:
        assert self._owner.stdin is not None
        self._owner.stdin.write("".join(f"{line}\n" for line in lines))
        self._owner.stdin.flush()

    def _look(self) -> None:
        fresh = ports(self._pids) - self._known
        if fresh:
            self._known |= fresh
            self._tell(f"add element inet {self._name} ports {{ {', '.join(map(str, sorted(fresh)))} }}")

    def _follow(self) -> None:
        while not self._over.wait(LOOK):
            try:
                self._look()
            except OSError:  # nft has ended
                return

    def _wait_until_there(self) -> None:
        """Wait until the rules are active. Raises `OSError` if nft or the kernel refuses them."""
        listing = [*self._namespace, "nft", "list", "set", "inet", self._name, "ports"]
        wanted = {str(port) for port in self._known}
        tries = int(START / LOOK)
        for _ in range(tries):
            done = subprocess.run(listing, capture_output=True, text=True)
            if done.returncode == 0 and wanted <= set(done.stdout.replace(",", " ").split()):
                return
            if self._owner.poll() is not None:
                break
            self._over.wait(LOOK)
        self._owner.kill()
        assert self._owner.stderr is not None
        words = self._owner.stderr.read()
        raise OSError(faults.NFT_REFUSED(reason=words.strip() or done.stderr.strip()))

    def remove(self) -> None:
        self._over.set()
        self._thread.join()
        assert self._owner.stdin is not None
        self._owner.stdin.close()
        try:
            self._owner.wait(START)
        except subprocess.TimeoutExpired:
            self._owner.kill()
            self._owner.wait()
        assert self._owner.stderr is not None
        self._owner.stderr.close()


def dropped(victim: Victim, values: Values) -> Undo:
    share = int(values["percent"])
    chance = "" if share >= 100 else f"numgen random mod 100 < {share} "
    return Rules((victim.pid, *victim.more), str(values["direction"]), f"{chance}drop").remove


def slowed(victim: Victim, values: Values) -> Undo:
    """Drop what exceeds the rate, so that TCP slows down."""
    rate = int(values["kib"])
    return Rules((victim.pid, *victim.more), "both", f"limit rate over {rate} kbytes/second burst 256 kbytes drop").remove


_DIRECTION = Parameter("direction", "both", "which packets, seen from the target", choices=_DIRECTIONS)
_PERCENT = Parameter("percent", 100, "how many of a hundred packets", "%", choices=tuple(range(1, 101)))
_RATE = Parameter("kib", 512, "what passes in a second, in and out together", "KiB/s", choices=())

FAULTS = (
    Fault(
        "packet_drop",
        "Packets of the worker's TCP connections are dropped for some seconds.",
        Hits.WORKER,
        Outcome.UNDISTURBED,
        outside=dropped,
        parameters=(_DIRECTION, _PERCENT, Parameter(SECONDS, 1.0, "how long; less than any limit of the script's groups", "s")),
        why_not=why_not,
    ),
    Fault(
        "slow_link",
        "The worker's TCP connections pass so many KiB in a second only, for some seconds.",
        Hits.WORKER,
        Outcome.UNDISTURBED,
        outside=slowed,
        parameters=(_RATE, Parameter(SECONDS, 2.0, "how long", "s")),
        why_not=why_not,
    ),
    Fault(
        "node_cut",
        "Packets of all the job's processes on a node are dropped for longer than it may be silent, so its ranks go elsewhere.",
        Hits.NODE,
        Outcome.REPLACED,
        outside=dropped,
        parameters=(_DIRECTION, _PERCENT, Parameter(SECONDS, 20.0, "how long; more than --node-timeout", "s")),
        alone=Outcome.ENDS,
        why_not=why_not,
    ),
)
