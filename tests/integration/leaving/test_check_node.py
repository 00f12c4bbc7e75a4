"""`understudy check-node`, the real command: it passes here, and reports a fault where there is one.

Broken hardware is not available, so something replaces it inside the process of the check: a `sitecustomize` on its path, which Python
runs at its start, spoils one function (of numpy, of `os`, of the memory check), as the test says. All else is real.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from tests import packages
from tests.checks.test_network import SHORT, listening, spoils
from tests.integration.control.test_disk_full import small
from tests.integration.hosts import Host, needs_hosts, network
from tests.integration.processes import Mark, marked, wait_until
from tests.message_texts import codes, has

from understudy.checks import peers
from understudy.checks.base import Report
from understudy.checks.options import NAMES
from understudy.detectors.base import GROUP
from understudy.messages import detector_files, extensions, network_check, node_check_detectors, node_checks, tools

__all__ = ["small"]
COMMAND = [sys.executable, "-m", "understudy.cli", "check-node"]
QUICK = ["--passes", "2", "--memory-most", "64", "--disk-size", "16", "--min-free", "0"]
LIMIT = 120.0
TOKEN = "a long text of this test"


class Node:
    """The folder in which the command runs, and the simulated hardware faults there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.packages = folder / "packages"
        self.packages.mkdir()
        self._spoilt: list[str] = []

    def spoil(self, source: str) -> None:
        """Runs at the start of the process of each check."""
        self._spoilt.append(dedent(source))
        body = "import sys\nif '--one' in sys.orig_argv:\n    exec(" + repr("\n".join(self._spoilt)) + ")\n"
        (self.packages / "sitecustomize.py").write_text(body)

    def environment(self, **more: str) -> dict[str, str]:
        path = os.pathsep.join([str(self.packages), *filter(None, [os.environ.get("PYTHONPATH")])])
        return {**os.environ, "COLUMNS": "200", "PYTHONPATH": path, **more}

    def check(self, *words: str, limits: Callable[[], None] | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *QUICK, *words],
            cwd=self.folder,
            env=self.environment(**environment),
            capture_output=True,
            text=True,
            timeout=LIMIT,
            preexec_fn=limits,
        )

    def fails(self, name: str, *words: str, limits: Callable[[], None] | None = None, **environment: str) -> str:
        """Why, in the words of the only check that is run."""
        done = self.check("--only", name, "--json", *words, limits=limits, **environment)
        assert done.returncode == 1, done.stdout + done.stderr
        report = Report.model_validate_json(done.stdout)
        (result,) = report.results
        assert (report.passed, result.check, result.verdict) == (False, name, "failed")
        return result.detail


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_this_machine_passes(node: Node) -> None:
    """Except for the kernel's log: it may have reports."""
    done = node.check("--skip", "detectors")
    assert done.returncode == 0, done.stdout + done.stderr
    for words in ("passed", "compute", "memory", "disk", "CPU 0", "GB/s", network_check.NO_PEER.code):
        assert words in done.stdout
    assert has(done.stderr, tools.NODE_PASSES)
    assert [path.name for path in node.folder.iterdir()] == ["packages"]


def test_json_has_every_figure(node: Node) -> None:
    done = node.check("--json")
    reported = json.loads(done.stdout)
    assert reported["passed"] is (done.returncode == 0)
    results = {result["check"]: result for result in reported["results"]}
    assert tuple(results) == NAMES
    cpus = [f"CPU {cpu}" for cpu in sorted(os.sched_getaffinity(0))]
    assert [figure["name"] for figure in results["compute"]["figures"]] == cpus
    assert [figure["unit"] for figure in results["memory"]["figures"]] == ["MiB", "GB/s", "GB/s"]
    assert results["network"]["verdict"] == "skipped"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--only", "fan"], f"{detector_files.BAD_SETTING.code}: only.0: "),
        (["--only", "disk", "--skip", "disk"], node_checks.NO_CHECKS()),
        (["--memory-share", "1.5"], f"{detector_files.BAD_SETTING.code}: memory_share: "),
        (["--peer", "host"], node_checks.NO_PEER_ADDRESS(peer="host")),
        (["--peer", "10.0.0.5:80"], tools.HOST_NEEDS_SECRET(host="10.0.0.5")),
        (["--serve", "--host", "0.0.0.0"], tools.HOST_NEEDS_SECRET(host="0.0.0.0")),
        (["--token-file", "away"], tools.PLACE_UNUSABLE(place="away", reason="No such file or directory")),
        (["--serve", "--host", "127.0.0.1", "--port", "1", "--serve-for", "0"], "serve-for"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_reason(node: Node, words: list[str], reason: str) -> None:
    done = node.check(*words)
    assert done.returncode == 2
    assert reason in " ".join(done.stderr.split())


def test_a_short_secret_is_refused_where_others_can_try_it(node: Node) -> None:
    done = node.check("--peer", "10.0.0.5:80", UNDERSTUDY_TOKEN="short")
    assert done.returncode == 2 and has(done.stderr, tools.SECRET_TOO_SHORT, least=16)


def test_a_node_of_which_nothing_is_known_does_not_pass(node: Node) -> None:
    done = node.check("--only", "network")
    assert done.returncode == 1
    assert has(done.stderr, tools.NODE_UNTRIED)


def test_a_cpu_that_computes_wrongly(node: Node) -> None:
    """Simulated by `numpy.sqrt` whose last bit is wrong in one number, on the last CPU only."""
    cpus = sorted(os.sched_getaffinity(0))
    node.spoil(
        f"""
        import numpy, os
        def wrong(numbers, true=numpy.sqrt):
            found = true(numbers)
            if os.sched_getaffinity(0) == {{{cpus[-1]}}}:
                found.view(f"u{{found.itemsize}}")[5] ^= 1
            return found
        numpy.sqrt = wrong
        """
    )
    assert has(node.fails("compute"), node_checks.CPU_WRONG, cpu=cpus[-1])


def test_a_cpu_that_ends_its_process(node: Node) -> None:
    """Simulated by `numpy.sqrt` that ends the process as an illegal instruction does."""
    node.spoil("import numpy, os, signal; numpy.sqrt = lambda numbers: os.kill(os.getpid(), signal.SIGILL)")
    assert node.fails("compute") == node_checks.KILLED(signal="SIGILL")


def test_memory_that_does_not_hold(node: Node) -> None:
    """Simulated by a bit that is changed right after it was written."""
    node.spoil(
        """
        from understudy.checks import memory
        def spoilt(block, first, complement, true=memory.write):
            true(block, first, complement)
            block[777] ^= memory.np.uint64(1 << 20)
        memory.write = spoilt
        """
    )
    assert has(node.fails("memory"), node_checks.MEMORY_WRONG, words=1, block=0, blocks=1, pattern="the pattern", bits=0x100000)


def test_memory_that_cannot_be_corrected(node: Node) -> None:
    """Simulated by the signal that the kernel sends then."""
    node.spoil("import os, signal; from understudy.checks import memory; memory.write = lambda *_: os.kill(os.getpid(), signal.SIGBUS)")
    assert node.fails("memory") == node_checks.BAD_MEMORY(signal="SIGBUS")


def test_a_disk_that_is_full(node: Node, small: Path) -> None:
    (small / "filling").write_bytes(bytes(2 << 20))
    assert has(node.fails("disk", "--folder", str(small)), node_checks.DISK_FULL, folder=small, free=0.0)


def test_a_disk_that_fills_up_while_it_is_written(node: Node) -> None:
    """The kernel's limit of the size of a file replaces the limit of a disk."""

    def limits() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, 8 << 20))

    detail = node.fails("disk", limits=limits)
    assert detail == node_checks.NO_ROOM(folder=".", size=16, reason=os.strerror(errno.EFBIG))


def test_a_disk_that_reads_other_bytes(node: Node) -> None:
    """Simulated by a changed byte in what the kernel has read."""
    node.spoil(
        """
        import os
        def spoilt(descriptor, buffers, offset, true=os.preadv):
            count = true(descriptor, buffers, offset)
            buffers[0][4000] ^= offset == 3 << 20
            return count
        os.preadv = spoilt
        """
    )
    assert node.fails("disk") == node_checks.DISK_WRONG(folder=".", offset=3)


FAN = """
import time
from understudy.detectors.base import Evidence, NodeDetector, Severity, Subject


class Fan(NodeDetector):
    name = "fan"

    def look(self):
        yield Evidence(self.name, Subject.DEVICE, "", Severity.SUSPECT, "the fan is loud", time.time(), "loud", "fan0")
"""


def test_a_detector_of_another_package_suspects_it(node: Node) -> None:
    packages.install(node.packages, "fans", GROUP, "fans:Fan", FAN)
    assert has(node.fails("detectors"), node_check_detectors.FOUND, detector="fan", detail="the fan is loud")


def test_a_detector_that_cannot_be_loaded(node: Node) -> None:
    packages.install(node.packages, "fans", GROUP, "fans:Away", FAN)
    entry = "the entry point fans = fans:Away of understudy.detectors (fans 1.0)"
    assert has(node.fails("detectors"), extensions.NOT_LOADED, entry=entry)


@contextlib.contextmanager
def hanging(node: Node) -> Iterator[tuple[subprocess.Popen[bytes], Mark]]:
    """Run the command while a check hangs. Simulated by a disk that never answers."""
    node.spoil("import os, signal; os.fsync = lambda descriptor: signal.pause()")
    with marked() as mark:
        running = subprocess.Popen([*COMMAND, *QUICK, "--only", "disk"], cwd=node.folder, env={**mark.environment(), **node.environment()})
        wait_until(lambda: mark.pids_running("understudy.checks --one disk"), "the process of the check")
        yield running, mark


def test_killed_it_leaves_no_process_running(node: Node) -> None:
    with hanging(node) as (running, mark):
        running.kill()
        running.wait()
        mark.wait_until_none()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_can_be_called_off(node: Node, number: signal.Signals) -> None:
    with hanging(node) as (running, mark):
        running.send_signal(number)
        assert running.wait(LIMIT) == 130
        mark.wait_until_none()


Serve = Callable[..., str]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts the other side: its HOST:PORT, or that on one of several hosts."""
    with marked() as mark:

        def start(*words: str, host: Host | None = None) -> str:
            output = tmp_path / "served.txt"
            command, environment = [*COMMAND, "--serve", *words], mark.environment(COLUMNS="200")
            if host is not None:
                host.start(command, tmp_path, environment, output)
            else:
                with output.open("wb") as file:
                    subprocess.Popen([*command, "--port", "0"], env=environment, stdout=file, stderr=file)
            wait_until(lambda: output.exists() and "check-node --peer " in output.read_text(), "what it listens on")
            return output.read_text().split("check-node --peer ")[1].split()[0]

        yield start


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(f"{TOKEN}\n")
    return path


def test_the_network_to_a_peer(node: Node, serve: Serve, secret: Path) -> None:
    peer = serve("--token-file", str(secret))
    words = ["--only", "network", "--peer", peer, "--peer", peer, "--seconds", "0.2", "--token-file", str(secret)]
    done = node.check(*words, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = Report.model_validate_json(done.stdout).results
    assert [figure.name for figure in result.figures] == [f"to {peer}", f"from {peer}"] * 2
    assert all(figure.value > 0 for figure in result.figures)
    assert TOKEN not in done.stdout + done.stderr + (node.folder / "served.txt").read_text()
    assert has(node.fails(*words[1:], "--min-gbits", "1e6"), network_check.SLOW, wanted=1e6)
    assert has(node.fails(*words[1:-2], UNDERSTUDY_TOKEN="another long text"), network_check.WRONG_TOKEN)
    assert has(node.fails(*words[1:-2]), network_check.WRONG_TOKEN)


def test_a_peer_that_is_away(node: Node) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        peer = f"127.0.0.1:{free.getsockname()[1]}"
    assert node.fails("network", "--peer", peer) == (f"{peer}: {network_check.NOT_LISTENING(reason=os.strerror(errno.ECONNREFUSED))}")


def test_a_peer_that_sends_spoilt_data(node: Node) -> None:
    """Simulated by a peer of the test that changes a bit."""
    with listening(spoils) as peer:
        detail = node.fails("network", "--peer", peer, "--seconds", str(SHORT), UNDERSTUDY_TOKEN=TOKEN)
    assert detail == network_check.CORRUPT(way=f"from {peer}", wrong=1, count=3)


def test_a_peer_that_stops_in_the_middle(node: Node) -> None:
    """Simulated by a peer of the test that sends nothing more after its first block, and does not close either."""
    over = threading.Event()

    def stops(connection: socket.socket) -> None:
        line = peers.Line(connection, LIMIT)
        upwards, downwards = peers.both(peers.admit(line, (TOKEN,)).seed)
        line.send(upwards.receive(line).packed() + b"B" + downwards._blocks[0] + b"B")
        over.wait(LIMIT)

    with listening(stops) as peer:
        detail = node.fails("network", "--peer", peer, "--seconds", str(SHORT), UNDERSTUDY_TOKEN=TOKEN)
        over.set()
    assert detail == f"{peer}: {network_check.SENDS_NOTHING(seconds=5)}"


@needs_hosts
def test_two_hosts(tmp_path: Path, serve: Serve, secret: Path) -> None:
    """A link that is made slow, and one that is gone."""
    with network(2) as (one, other), marked() as mark:
        peer = serve("--host", other.address, "--token-file", str(secret), host=other)
        assert peer == f"{other.address}:29410"

        def check(name: str, *words: str) -> tuple[int, Any]:
            command = [*COMMAND, "--only", "network", "--peer", peer, "--token-file", str(secret), "--seconds", "0.5", "--json", *words]
            output = tmp_path / f"{name}.txt"
            code = one.start(command, tmp_path, mark.environment(), output).wait(LIMIT)
            (result,) = Report.model_validate_json(output.read_text()[output.read_text().index("{") :].rpartition("}")[0] + "}").results
            return code, result

        code, result = check("fast", "--min-gbits", "0.015")
        assert code == 0, result
        one.slow("8mbit")
        code, result = check("slow", "--min-gbits", "0.015")
        assert code == 1
        assert has(result.detail, network_check.SLOW, way=f"to {peer}") and codes(result.detail) == [network_check.SLOW.code]
        other.cut()
        code, result = check("cut")
        assert code == 1 and result.detail == f"{peer}: {network_check.NO_ANSWER(seconds=10)}"
