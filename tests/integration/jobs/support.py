"""What the job scripts of the tests share: a fault that strikes once, waits for a file, and the record of what a rank computed."""

from __future__ import annotations

import atexit
import hashlib
import os
import random
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import torch
import torch.distributed as dist

import understudy

folder = Path(sys.argv[1])
_never = threading.Event()


def first_time(name: str) -> bool:
    """Whether no process of this run has asked for `name` before."""
    try:
        os.close(os.open(folder / f"marker {name}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def fault(job: understudy.Job, point: str) -> None:
    """Kills this worker if FAULTS names this place: `point:committed steps:rank`, separated by commas. Each strikes once."""
    here = f"{point}:{job.committed}:{job.rank}"
    if here in os.environ.get("FAULTS", "").split(",") and first_time(here):
        os.kill(os.getpid(), signal.SIGKILL)


def wait_for_file(name: str) -> None:
    while not (folder / name).exists():
        _never.wait(0.01)


def log(job: understudy.Job, what: str, value: Any) -> None:
    """A line for the comparison, exact. A newcomer may write one again; then it must be the same."""
    exact = value.item() if isinstance(value, torch.Tensor) else value
    text = exact.hex() if isinstance(exact, float) else repr(exact)
    with (folder / f"log-{job.rank}.txt").open("a") as file:
        file.write(f"{what} {job.committed}: {text}\n")


class Counter:
    """A value of the user's own."""

    def __init__(self) -> None:
        self.count = 0

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


def seed(number: int) -> None:
    torch.manual_seed(number)
    numpy.random.seed(number)
    random.seed(number)


def _digest(tensor: torch.Tensor) -> str:
    local = getattr(tensor, "_local_tensor", tensor).detach().contiguous()
    raw = local.reshape(-1).view(torch.uint8).numpy().tobytes()
    return f"{local.dtype} {tuple(local.shape)} {hashlib.sha256(raw).hexdigest()}"


def _walk(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, torch.Tensor):
        yield name, _digest(value)
    elif isinstance(value, numpy.ndarray):
        yield name, f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    elif isinstance(value, dict):
        for key in value:
            yield from _walk(f"{name}/{key}", value[key])
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _walk(f"{name}/{number}", item)
    else:
        text = repr(value)
        yield name, text if len(text) < 200 else hashlib.sha256(text.encode()).hexdigest()


def final(job: understudy.Job, **objects: Any) -> None:
    """Ends the script: records this rank's whole state, which is that of `objects` and the random streams."""
    found: dict[str, Any] = {"committed": job.committed, "torch": torch.get_rng_state(), "python": repr(random.getstate())}
    found["numpy"] = numpy.random.get_state()
    for name, thing in objects.items():
        if isinstance(thing, torch.Generator):
            found[name] = thing.get_state()
        elif isinstance(thing, numpy.random.Generator):
            found[name] = thing.bit_generator.state
        else:
            found[name] = thing.state_dict() if hasattr(thing, "state_dict") else thing
    if dist.is_initialized():
        found["timeout"] = str(dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu")).options._timeout)
    lines = [f"{name}: {text}" for name, text in sorted(_walk("", found))]
    (folder / f"final-{job.rank}.txt").write_text("\n".join(lines))
    if dist.is_initialized():
        dist.destroy_process_group()
    if "UNDERSTUDY_RUN_DIR" not in os.environ:
        # Gloo's threads (torch 2.13) live on in groups that the script still refers to. One that wants the interpreter's lock to free a
        # tensor while the interpreter ends is ended by it, and takes the process along: "terminate called without an active
        # exception". Understudy's workers end in this way, too.
        atexit.register(_leave)


def _leave() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
