"""Measure the best that this machine can do, and how far each phase of a recovery is from it; both in the same run.

    python benchmarks/floor.py --model 10M --ranks 4 --faults 3 --json floor.json
    python benchmarks/floor.py --model 1M,10M,100M --ranks 2,4,8 --plots docs/images      how each phase grows

Trains under `understudy run`, kills workers as `compare.py` does, and compares the phases of the incidents (`understudy report --json`)
with measurements right before and after, without Understudy: a copy in memory and a send over a Unix socket of as many bytes as a recovery
moves; a message and its answer; how soon a killed process is noticed; forking a process that has imported torch, and importing it; building
the model; building a Gloo group of all ranks; one training step of all ranks. A ratio of 1 is the physical optimum; phases overlap.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

import evidence

sys.path.insert(0, str(Path(__file__).resolve().parent))

from peers.observe import adopt_orphans, observe
from peers.sizes import SIZES, choice
from peers.systems import Training as Planned
from peers.systems import Understudy, UnderstudyPrepared
from peers.tables import markdown, spread
from peers.training import Arguments, Training
from recovery import machine
from running import PHASES

WHOLE = ("attach", "transfer", "redo")  # phases whose floors, one after the other, are that of a recovery
TIMES = 7
STEPS, SKIP = 15, 3


def median(measure: Callable[[], float], times: int = TIMES) -> float:
    return statistics.median(measure() for _ in range(times))


def copy_seconds(size: int, fresh: bool = False) -> float:
    """Return the seconds of a copy of `size` bytes by one core, into memory that has been touched before or is `fresh` from the kernel."""
    torch.set_num_threads(1)
    source, used = (torch.full((size,), value, dtype=torch.uint8) for value in (1, 2))

    def once() -> float:
        target = torch.empty_like(used) if fresh else used
        start = time.perf_counter()
        target.copy_(source)
        return time.perf_counter() - start

    return median(once)


def connected() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection over loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    for end in (one, other):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return one, other


def send_seconds(size: int) -> float:
    """Return the seconds to send `size` bytes from one process to another over a Unix socket, until the last one has arrived."""

    def once() -> float:
        near, far = socket.socketpair()
        child = os.fork()
        if child == 0:
            far.sendall(b"\1" * size)
            os._exit(0)
        buffer, got = bytearray(size), 0
        view = memoryview(buffer)
        near.recv_into(view[:1])  # the sender is ready
        start, got = time.perf_counter(), 1
        while got < size:
            got += near.recv_into(view[got:])
        seconds = time.perf_counter() - start
        os.waitpid(child, 0)
        near.close()
        far.close()
        return seconds

    return median(once)


def message_seconds() -> float:
    """Return the seconds of 64 bytes to another thread's socket and back."""
    near, far = connected()

    def answer() -> None:
        while text := far.recv(64):
            far.sendall(text)

    thread = threading.Thread(target=answer)
    thread.start()

    def once() -> float:
        start = time.perf_counter()
        near.sendall(bytes(64))
        near.recv(64, socket.MSG_WAITALL)
        return time.perf_counter() - start

    seconds = median(once, 200)
    near.close()
    thread.join()
    far.close()
    return seconds


def notice_seconds() -> float:
    """Return the seconds from SIGKILL until a process that waits for the killed one wakes up. The killed one has imported torch: most of
    the time the kernel frees its memory. An incident begins when this is over, because the end is not known earlier.
    """

    def once() -> float:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writing, b".")
            signal.pause()
        os.read(reading, 1)
        os.close(reading)
        os.close(writing)
        handle = os.pidfd_open(child)
        start = time.perf_counter()
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        select.select([handle], [], [])
        seconds = time.perf_counter() - start
        os.waitpid(child, 0)
        os.close(handle)
        return seconds

    return median(once)


def fork_seconds() -> float:
    """Return the seconds until a fork of this process, which has imported torch, runs."""

    def once() -> float:
        reading, writing = os.pipe()
        start = time.perf_counter()
        child = os.fork()
        if child == 0:
            os.write(writing, b".")
            os._exit(0)
        os.read(reading, 1)
        seconds = time.perf_counter() - start
        os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)
        return seconds

    return median(once)


def import_seconds() -> float:
    command = [sys.executable, "-c", "import time; start = time.perf_counter(); import torch; print(time.perf_counter() - start)"]
    return median(lambda: float(subprocess.run(command, check=True, capture_output=True).stdout), 3)


def together(rank: int, ranks: int, meeting: str, results: str, args: Arguments) -> None:
    """Run one rank of a plain Gloo job: build the model and groups, and train."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    groups, steps = [], []
    for _ in range(TIMES):
        dist.barrier()
        start = time.perf_counter()
        dist.new_group(backend="gloo")
        groups.append(time.perf_counter() - start)
    Training(args)  # the first one pays for what torch loads late
    dist.barrier()
    start = time.perf_counter()
    training = Training(args)
    build = time.perf_counter() - start
    training.model = DistributedDataParallel(training.net)
    for step in range(STEPS):
        start = time.perf_counter()
        training.backward(step, rank)
        training.optimizer.step()
        training.optimizer.zero_grad()
        steps.append(time.perf_counter() - start)
    if rank == 0:
        found = {"group": statistics.median(groups), "build": build, "step": statistics.median(steps[SKIP:])}
        Path(results).write_text(json.dumps(found))
    dist.destroy_process_group()


def group_build_step(planned: Planned) -> dict[str, float]:
    """Return the seconds for a group of all ranks, for the model while all ranks build it, and for one step."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results")
        args = Arguments(planned.model, STEPS, planned.seed, planned.batch, Path(folder, "log"), Path(folder), 0, "whole")
        spawn(together, (planned.ranks, str(Path(folder, "meeting")), str(results), args), nprocs=planned.ranks)  # type: ignore[no-untyped-call]
        found: dict[str, float] = json.loads(results.read_text())
        return found


@dataclass(frozen=True)
class Floor:
    seconds: float
    what: str


def recover(system: Understudy, step: float) -> list[dict[str, Any]]:
    """Return the incidents of a run, as in `understudy report`."""
    folder = system.folder
    _, observed = observe(system, step, True, lambda text: print(text, flush=True))
    if observed.problem:
        raise SystemExit(f"the run did not finish: {observed.problem}\n{(folder / 'output.log').read_text(errors='replace')[-3000:]}")
    command = [sys.executable, "-m", "understudy.cli", "report", "--json", "--run-dir", str(folder / "run")]
    incidents: list[dict[str, Any]] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["incidents"]
    return [incident for incident in incidents if incident["seconds"] is not None]


def floors(size: int, found: dict[str, float]) -> dict[str, Floor]:
    """Return the floor of each phase; `size`: the bytes that a recovery moves."""
    message, copy = message_seconds(), copy_seconds(size)
    return {
        "detect": Floor(message, "a message over loopback and its answer"),
        "abort": Floor(message, "a message over loopback and its answer"),
        "assign": Floor(message, "a message over loopback and its answer"),
        "setup": Floor(found["build"], "the model and its optimizer are built"),
        "attach": Floor(found["group"], "a Gloo group of all ranks is built"),
        "transfer": Floor(send_seconds(size), f"{size / 1e6:.1f} MB over one Unix socket"),
        "verify": Floor(copy, f"{size / 1e6:.1f} MB copied in memory"),
        "redo": Floor(found["step"], "one step of all ranks"),
    }


def show(incidents: list[dict[str, Any]], by_phase: dict[str, Floor]) -> str:
    rows = [["phase", "took, ms", "floor, ms", "ratio", "what the floor is"]]
    for phase in PHASES:
        took, floor = [incident["phases"].get(phase, 0.0) for incident in incidents], by_phase[phase]
        ratio = statistics.median(took) / floor.seconds
        rows.append([phase, spread(took, 1, 1000), f"{floor.seconds * 1000:.2f}", f"{ratio:.1f}", floor.what])
    least = sum(by_phase[phase].seconds for phase in WHOLE)
    total = [incident["seconds"] for incident in incidents]
    ratio = statistics.median(total) / least
    rows.append(["whole", spread(total, 1, 1000), f"{least * 1000:.2f}", f"{ratio:.1f}", "attach, transfer and redo, one after the other"])
    return markdown(rows)


def measure(model: str, ranks: int, args: argparse.Namespace) -> dict[str, Any]:
    """Measure one size of the model with one number of ranks, and print its table."""
    planned = Planned(model, ranks, 0, args.seed, args.batch, args.faults, 0, 0)
    found = group_build_step(planned)
    steps = max(8, round((args.faults + 1) * args.between / found["step"]))
    planned = replace(planned, steps=steps)
    folder = Path(tempfile.mkdtemp(prefix="understudy-floor-"))
    try:
        kind = UnderstudyPrepared if args.prepared else Understudy
        incidents = recover(kind(planned, folder / "run"), found["step"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    size = int(statistics.median(incident["bytes_moved"] for incident in incidents))
    by_phase = floors(size, found)
    gigabytes = {what: size / by_phase[phase].seconds / 1e9 for what, phase in (("copy", "verify"), ("socket", "transfer"))}
    print(f"\n{SIZES[model].parameters() / 1e6:.1f} M parameters, {ranks} ranks, {len(incidents)} faults, {size / 1e6:.1f} MB moved\n")
    print(show(incidents, by_phase))
    fresh = size / copy_seconds(size, fresh=True) / 1e9
    print(
        f"\na copy in memory {gigabytes['copy']:.2f} GB/s, {fresh:.2f} into memory that was never touched; a Unix socket "
        f"{gigabytes['socket']:.2f} GB/s",
        flush=True,
    )
    whole = statistics.median(incident["seconds"] for incident in incidents)
    return {
        "model": model,
        "ranks": ranks,
        "bytes": size,
        "floors": {phase: floor.seconds for phase, floor in by_phase.items()},
        "medians": {phase: statistics.median(one["phases"].get(phase, 0.0) for one in incidents) for phase in PHASES} | {"whole": whole},
        "incidents": incidents,
    }


def growth(results: list[dict[str, Any]]) -> str:
    """Describe each phase, in ms, as a function of bytes and of ranks."""
    rows = [["model", "ranks", "MB moved", *PHASES, "whole", "whole / floor"]]
    for one in results:
        least = sum(one["floors"][phase] for phase in WHOLE)
        took = [f"{one['medians'][phase] * 1000:.0f}" for phase in (*PHASES, "whole")]
        rows.append([one["model"], str(one["ranks"]), f"{one['bytes'] / 1e6:.1f}", *took, f"{one['medians']['whole'] / least:.2f}"])
    return markdown(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=lambda text: choice(text, SIZES), default=["10M"], help=f"by comma: {', '.join(SIZES)} (10M)")
    parser.add_argument("--ranks", type=lambda text: [int(part) for part in text.split(",")], default=[4], help="by comma (4)")
    parser.add_argument("--batch", type=int, default=1, help="windows of 64 bytes per rank and step (1)")
    parser.add_argument("--faults", type=int, default=3, help="in each run (3)")
    parser.add_argument("--between", type=float, default=8.0, help="seconds of training between faults (8)")
    parser.add_argument("--prepared", action="store_true", help="with a spare that is prepared for each rank (understudy run --prepare)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", default="", help="file for all figures")
    evidence.add_option(parser, "floor-sizes")
    parser.add_argument("--plots", default="", help="folder for plots of each phase by bytes and by ranks")
    args = parser.parse_args()
    adopt_orphans()
    results = [measure(model, ranks, args) for model in args.model for ranks in args.ranks]
    notice, fork, importing = notice_seconds(), fork_seconds(), import_seconds()
    print(f"a killed process is noticed after {notice * 1000:.1f} ms, a fork takes {fork * 1000:.1f} ms, importing torch {importing:.2f} s")
    if len(results) > 1:
        print("\n" + growth(results))
    if args.write:
        evidence.write_table(args.write, growth(results))
    if args.plots:
        from peers import plots

        plots.phases(results, PHASES, Path(args.plots))
    if args.json:
        about = {"machine": machine(), "arguments": vars(args), "notice": notice, "fork": fork, "import": importing}
        Path(args.json).write_text(json.dumps({**about, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
