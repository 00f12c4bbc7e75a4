"""What an ordinary script leaves to the end of its interpreter: open files, threads at work, exit handlers, finalizers.

    last_words.py FOLDER WAY      WAY: how its ranks end

Nothing is written before the last line has run: threads and executors begin when the main thread has ended.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import gzip
import io
import os
import pickle
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import thread as futures

import torch
from support import folder, wait_for_file  # type: ignore[import-not-found]
from torch import nn
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.nn.parallel import DistributedDataParallel

import understudy

way = sys.argv[2]
job = understudy.join()
rank = job.rank
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
job.register(model=model, optimizer=optimizer)
never = threading.Event()
LINES = [f"line {number}\n" for number in range(20)]


@job.step
def train() -> None:
    optimizer.zero_grad()
    model(torch.ones(4, 4)).sum().backward()
    optimizer.step()


class Result:
    """Of a class of the script's own: it can be pickled as long as the script is `__main__`."""

    def __init__(self) -> None:
        self.rank = rank


class Log:
    def __del__(self) -> None:
        write("finalized")


def write(name: str) -> None:
    (folder / f"{name}-{rank}").write_text("".join(LINES))


def late(name: str, over: Callable[[], bool]) -> None:
    while not over():
        never.wait(0.01)
    write(name)


def pickled() -> None:
    (folder / f"pickled-{rank}").write_bytes(pickle.dumps(Result()))


def at_work() -> Iterator[None]:
    try:
        yield
    finally:
        write("generator")


libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
libc.fputs.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
buffered_in_c = libc.fopen(str(folder / f"stdio-{rank}").encode(), b"w")
text = (folder / f"text-{rank}").open("w")
compressed = gzip.open(folder / f"gzip-{rank}", "wb")  # noqa: SIM115 never closed
compressed_text = gzip.open(folder / f"gziptext-{rank}", "wt")  # noqa: SIM115
archive = zipfile.ZipFile(folder / f"zip-{rank}", "w")


class Owner:
    """Writes to what it owns, which must be finalized after it."""

    def __init__(self, owned: Owned) -> None:
        self.owned = owned

    def __del__(self) -> None:
        self.owned.lines.extend(LINES)


class Owned:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def __del__(self) -> None:
        (folder / f"owned-{rank}").write_text("".join(self.lines))


log = Log()
owned = Owned()
owner = Owner(owned)
side_server = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], stdout=subprocess.PIPE)
reader = threading.Thread(target=side_server.stdout.read, daemon=True)  # type: ignore[union-attr]  # never returns, and holds the pipe's lock
reader.start()
gc.freeze()
generator = at_work()
next(generator)
atexit.register(pickled)
for _ in job.steps(2):
    train()
libc.fputs("".join(LINES).encode(), buffered_in_c)
text.writelines(LINES)
compressed.write("".join(LINES).encode())
compressed_text.writelines(LINES)
archive.writestr("lines", "".join(LINES))
threading.Thread(target=late, args=("thread", lambda: not threading.main_thread().is_alive())).start()
ThreadPoolExecutor(1).submit(late, "executor", lambda: futures._shutdown)
async_save({"weights": torch.ones(1_000_000)}, checkpoint_id=folder / f"checkpoint-{rank}", no_dist=True)

if way == "exit 3":
    sys.exit(3)
if way == "raise":
    raise ValueError("on all ranks")
if way == "raise alone":
    if rank == 1:
        raise ValueError("on rank 1 alone")
    wait_for_file("never")
if way == "crash in a handler":
    atexit.register(lambda: os.kill(os.getpid(), signal.SIGSEGV) if rank == 1 else None)
if way == "error in a handler":
    atexit.register(lambda: io.StringIO().fileno())
