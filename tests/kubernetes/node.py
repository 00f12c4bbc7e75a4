"""The first process of a node of the test cluster: collects orphaned processes, and keeps the node alive.

    python node.py NAME FOLDER

Run by `unshare` in new namespaces for mounts, processes, network and the host's name. Killing it switches the node off: the kernel ends
everything in its process namespace with it, and its network. FOLDER is the node's disk, which stays; containers that ran when it was
switched off are noted there as lost, and layers of containers, which are in memory, are gone.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

LOST = "255"  # the exit code of a container whose end was not observed, as in containerd


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    socket.sethostname(name)
    for pod in (folder / "pods").glob("*"):
        (pod / "sandbox.json").unlink(missing_ok=True)
        for attempt in (pod / "containers").glob("*/*"):
            if not (attempt / "exit").exists():
                (attempt / "exit").write_text(LOST)
    subprocess.run(["mount", "-t", "tmpfs", "layers", str(folder / "layers")], check=True)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    (folder / "up").touch()
    while signal.sigwait({signal.SIGCHLD}):
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass


if __name__ == "__main__":
    main()
