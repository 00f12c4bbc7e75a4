"""The first process of a host of the test cluster: makes its own file systems, and starts a daemon of Slurm's on request.

Run by `unshare` in new namespaces for mounts, processes and the host's name. Killing this process switches the host off: the
kernel ends everything in its process namespace with it. It is controlled by signals: USR1 starts the daemon, USR2 kills it, and only it.

    python node.py NAME FOLDER [DAEMON ARGUMENTS...]

FOLDER is the cluster's: all hosts share its content. /tmp and /dev/shm are the host's own. Users are those of FOLDER/passwd, so that
jobs of people run who have no account on this machine. Nothing outside of these namespaces is changed.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def own(place: Path, name: str, folder: Path, shared: list[Path]) -> None:
    """Puts a folder of the host's own at `place`, in which those that are `shared` are seen as before."""
    mine = folder / "hosts" / name / str(place).strip("/").replace("/", "-")
    mine.mkdir(parents=True)
    mine.chmod(0o1777)
    for path in shared:
        seen = mine / path.relative_to(place)
        seen.mkdir(parents=True)
        mount("--rbind", str(path), str(seen))
    mount("--rbind", str(mine), str(place))


def hidden(path: Path) -> Path | None:
    """The first folder above it that only its owner may enter."""
    above = [folder for folder in (*reversed(path.parents),) if not folder.stat().st_mode & 0o001]
    return above[0] if above else None


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    socket.sethostname(name)
    # Every user must be able to run this Python, and to read this project.
    needed = [Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), Path(os.environ["ROOT"])]
    places = {Path("/dev/shm"), Path("/tmp"), *filter(None, map(hidden, needed))}
    needed = [path for path in needed if not any(other != path and path.is_relative_to(other) for other in needed)]
    for place in places:
        own(place, name, folder, [path for path in dict.fromkeys([*needed, folder]) if path.is_relative_to(place)])
    for file in ("passwd", "group"):
        mount("--bind", str(folder / file), f"/etc/{file}")
    daemon: subprocess.Popen[bytes] | None = None
    asked = {signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, asked)
    (folder / "hosts" / name / "up").touch()
    while True:
        which = signal.sigwait(asked)
        if which == signal.SIGUSR1:
            with (folder / "log" / name).open("ab") as log:
                daemon = subprocess.Popen(
                    sys.argv[3:], stdout=log, stderr=log, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, asked) and None
                )
        elif which == signal.SIGUSR2 and daemon is not None:
            daemon.kill()
        else:  # a process has ended: orphans are ours
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                pass


if __name__ == "__main__":
    main()
