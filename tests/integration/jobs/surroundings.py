"""What a script finds around it when it starts, written to FOLDER/seen-RANK.json. It may end when FOLDER/"end" is there."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import random
import resource
import signal
import sys
import threading
import warnings
from pathlib import Path

import numpy
import torch

PR_GET_PDEATHSIG = 2
folder = Path(sys.argv[1])


def death_signal() -> int:
    number = ctypes.c_int()
    ctypes.CDLL(None).prctl(PR_GET_PDEATHSIG, ctypes.byref(number))
    return number.value


def kernel_view(name: str) -> list[str]:
    """What `ps` shows of this process."""
    return [part for part in Path(f"/proc/self/{name}").read_text().split("\0") if part]


def open_files() -> list[str]:
    """What kinds of files are open, but for the standard streams and what makes this list."""
    targets = {int(entry.name): os.readlink(f"/proc/self/fd/{entry.name}") for entry in os.scandir("/proc/self/fd")}
    return sorted(target.split(":")[0] for fd, target in targets.items() if fd > 2 and not target.endswith("/fd"))


chance = (random.random(), float(numpy.random.rand()), float(numpy.random.default_rng().random()), float(torch.rand(())))
seen = {
    "main": [__name__, __file__, sys.modules["__main__"].__dict__["__file__"], bool(__spec__)],
    "arguments": sys.argv,
    "path": sys.path,
    "flags": repr(sys.flags),
    "environment": dict(os.environ),
    "kernel's environment": [entry for entry in kernel_view("environ") if not entry.startswith("TORCHELASTIC_ERROR_FILE")],
    "stdin": os.readlink("/proc/self/fd/0"),
    "streams": [[s.encoding, s.errors, s.line_buffering] for s in (sys.stdout, sys.stderr)],
    "open files": open_files(),
    "session": [os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid()],
    "signals": [[int(n), str(signal.getsignal(n))] for n in signal.valid_signals() if n not in (signal.SIGKILL, signal.SIGSTOP)],
    "blocked signals": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))),
    "death signal": death_signal(),
    "threads": sorted(thread.name for thread in threading.enumerate()),
    "limits": [resource.getrlimit(n) for n in (resource.RLIMIT_NOFILE, resource.RLIMIT_STACK, resource.RLIMIT_CORE)],
    "umask and priority": [os.umask(0o22), os.nice(0), os.getcwd()],
    "collection": [gc.isenabled(), gc.get_threshold()],
    "warnings": [str(entry) for entry in warnings.filters],
    "torch": [
        torch.get_num_threads(),
        torch.is_grad_enabled(),
        str(torch.get_default_dtype()),
    ],
    "sum": torch.arange(300_000, dtype=torch.float32).sin().sum().item(),
}
once = {"pid": os.getpid(), "chance": chance, "command": kernel_view("cmdline")}
rank = os.environ.get("RANK", "0")
unfinished = folder / f"seen-{rank}.{os.getpid()}"
unfinished.write_text(json.dumps({**seen, "once": once}))
unfinished.rename(folder / f"seen-{rank}.json")
while "wait" in sys.argv and not (folder / "end").exists():
    threading.Event().wait(0.01)
