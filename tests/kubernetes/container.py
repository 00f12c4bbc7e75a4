"""The first process of a container, until it becomes the container's command: gives it a separate file system.

    python container.py SPECIFICATION

Run by `runtime.py` in the pod's network, host name and IPC, and in the container's own mount and process namespaces. The
container sees this machine's file system, with a layer for its writes; /tmp, /run, /dev/shm and a few files in /etc are its
own, and its volumes are where it wants them. Folders in `needed` are this machine's, so that Python and this project are there.

Standard library only, and little of it: it is started for every container.
"""

import ctypes
import json
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

BIND, REC, REMOUNT, RDONLY, PRIVATE = 4096, 16384, 32, 1, 1 << 18
DETACH = 2
MACHINE = "/.machine"
SAYS = 3  # descriptor on which it reports that the command begins; see `runtime.py`
CANNOT_START = 128  # as containerd has it
_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str = "none", flags: int = 0, options: str = "") -> None:
    if _libc.mount(source.encode(), target.encode(), kind.encode(), flags, options.encode()):
        raise OSError(ctypes.get_errno(), f"mount {source} on {target}: {os.strerror(ctypes.get_errno())}")


def place_for(source: str, target: Path) -> None:
    """Where it will be seen."""
    folder = Path(source).is_dir()
    (target if folder else target.parent).mkdir(parents=True, exist_ok=True)
    if not folder:
        target.touch()


def write(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)  # it may be a link
    path.write_text(text)


def see(paths: Iterable[str]) -> None:
    for path in paths:
        place_for(MACHINE + path, Path(path))
        mount(MACHINE + path, path, flags=BIND | REC)


def file_system(specification: dict[str, Any]) -> None:
    layer = Path(specification["layer"])
    root, upper, work, tmp, run = (layer / name for name in ("root", "upper", "work", "tmp", "run"))
    for folder in (root, upper, work, tmp, run):
        folder.mkdir(parents=True)
    tmp.chmod(0o1777)
    mount("overlay", str(root), "overlay", 0, f"lowerdir=/,upperdir={upper},workdir={work}")
    Path(f"{root}{MACHINE}").mkdir()
    mount("/", f"{root}{MACHINE}", flags=BIND | REC)
    os.chroot(root)
    os.chdir("/")  # from here on, links lead to where they lead in the container
    mount("proc", "/proc", "proc")
    mount("sysfs", "/sys", "sysfs")  # with the pod's interfaces
    mount(f"{MACHINE}/sys/fs/cgroup", "/sys/fs/cgroup", flags=BIND | REC)
    mount(f"{MACHINE}/dev", "/dev", flags=BIND | REC)
    for source, target in ((specification["shm"], "/dev/shm"), (tmp, "/tmp"), (run, "/run")):
        mount(f"{MACHINE}{source}", target, flags=BIND)
    see(specification["needed"])
    for path, text in specification["files"].items():
        write(Path(path), text)
    for source, target, read_only in specification["mounts"]:
        place_for(MACHINE + source, Path(target))
        mount(MACHINE + source, target, flags=BIND | REC)
        if read_only:
            mount("none", target, flags=BIND | REMOUNT | RDONLY)
    places = [target for _, target, _ in specification["mounts"]]
    see(path for path in specification["needed"] if any(Path(path).is_relative_to(place) for place in places))  # hidden by a volume
    if _libc.umount2(MACHINE.encode(), DETACH):
        raise OSError(ctypes.get_errno(), f"umount {MACHINE}")
    Path(MACHINE).rmdir()


def main() -> None:
    file = Path(sys.argv[1])
    specification = json.loads(file.read_text())
    new = file.with_name("pid.new")
    new.write_text(os.readlink("/proc/self"))  # as the node counts: its /proc is still there
    new.rename(file.with_name("pid"))
    file_system(specification)
    for which in signal.valid_signals():
        if which not in (signal.SIGKILL, signal.SIGSTOP) and signal.getsignal(which) is not None:
            signal.signal(which, signal.SIG_DFL)
    folder = Path(specification["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    os.set_inheritable(SAYS, False)
    os.write(SAYS, b"\n")
    os.execvpe(specification["words"][0], specification["words"], specification["environment"])


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        print(f"the container cannot start: {error}", file=sys.stderr, flush=True)
        os._exit(CANNOT_START)
