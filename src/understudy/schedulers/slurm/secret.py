"""Send the job's secret from the first node of a step to the others by `sbcast`: Slurm's daemons transfer it, as the job's own user.

It is stored in /tmp of every node under a name that others could know. So it is created there as a new file (`sbcast` fails if the file
exists), and accepted only if it belongs to this user and no other user may access it. The reader removes it.
"""

from __future__ import annotations

import os
import stat
import tempfile
import time
from pathlib import Path

from understudy.messages import slurm
from understudy.schedulers.base import SchedulerFailed
from understudy.schedulers.slurm import commands

LOOK = 0.05  # seconds
LONGEST = 4096


def place(name: str) -> Path:
    return Path("/tmp") / f"understudy-{os.geteuid()}-{name}"


def share(job: str, name: str, secret: str) -> None:
    with tempfile.NamedTemporaryFile("w", prefix="understudy-") as file:  # for its owner only
        file.write(secret + "\n")
        file.flush()
        commands.broadcast(job, file.name, str(place(name)))
    place(name).unlink(missing_ok=True)  # this node has the secret


def shared(name: str, seconds: float) -> str:
    path, end = place(name), time.monotonic() + seconds
    while True:
        text = _read(path)
        if text.endswith("\n"):
            path.unlink(missing_ok=True)
            return text.strip()
        if time.monotonic() > end:
            raise SchedulerFailed(slurm.NO_SECRET(seconds=seconds))
        time.sleep(LOOK)


def _read(path: Path) -> str:
    """Return the secret; "" as long as the file is missing or incomplete."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise SchedulerFailed(slurm.SECRET_UNREADABLE(path=path, reason=error.strerror)) from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        os.close(descriptor)
        raise SchedulerFailed(slurm.SECRET_OF_OTHERS(path=path))
    with os.fdopen(descriptor, errors="replace") as file:
        return file.read(LONGEST)
