"""The machine: versions, GPUs, limits, kernel, container. Reads, and changes nothing; of the environment only names."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import threading
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import understudy
from understudy.common.page_view import UNKNOWN
from understudy.links.lifeline import Lifeline
from understudy.worker.doctor.base import module

PACKAGES = ("numpy", "torchdata", "accelerate", "lightning", "pytorch-lightning", "transformers", "deepspeed")
VARIABLES = re.compile(r"(GLOO_SOCKET_IFNAME|NCCL_\w+|TORCH_\w+|UNDERSTUDY_\w+)")
SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|KEY")
PATIENCE = 5.0  # seconds
_DEVICES = {"NVIDIA": "nvidia[0-9]*", "AMD": "kfd"}
_CONTAINERS = {"docker": "/.dockerenv", "podman": "/run/.containerenv", "kubernetes": "/var/run/secrets/kubernetes.io"}


def versions() -> dict[str, str]:
    """Return the versions of installed packages, without importing them; the torch that runs, with the accelerator that it is built for."""
    found = {"understudy": understudy.__version__, "python": platform.python_version(), "torch": str(module("torch").__version__)}
    found |= {"torch build": _build(), "nccl": _nccl()}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return {name: version for name, version in found.items() if version}


def _build() -> str:
    version = module("torch").version
    return f"CUDA {version.cuda}" if version.cuda else f"ROCm {version.hip}" if version.hip else "CPU"


def _nccl() -> str:
    """Return the version of NCCL; "" if it is not compiled in."""
    if not module("torch.distributed").is_nccl_available():
        return ""
    with suppress(Exception):  # a build may have it and no version
        return ".".join(map(str, module("torch.cuda.nccl").version()))
    return "of unknown version"


def gpus() -> list[dict[str, Any]]:
    cuda = module("torch").cuda
    if not cuda.is_available():
        return []
    each = (cuda.get_device_properties(number) for number in range(cuda.device_count()))
    return [{"name": one.name, "memory": one.total_memory} for one in each]


def vendors(places: Path = Path("/dev")) -> list[str]:
    """Return the vendors of the GPUs for which the kernel has devices, whatever torch sees. AMD's device also exists for a processor with
    graphics.
    """
    return [vendor for vendor, pattern in _DEVICES.items() if any(places.glob(pattern))]


def system() -> dict[str, Any]:
    return {
        "kernel": f"{platform.system()} {platform.release()}",
        "libc": " ".join(platform.libc_ver()).strip(),
        "architecture": platform.machine(),
        "container": [name for name, path in _CONTAINERS.items() if Path(path).exists()],
        "seccomp": _status("Seccomp") not in ("", "0"),
        "cpus": len(os.sched_getaffinity(0)),
        "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
    }


def _status(name: str) -> str:
    """Return a line of /proc/self/status."""
    with suppress(OSError):
        match = re.search(rf"^{name}:\s*(\S+)", Path("/proc/self/status").read_text(), re.MULTILINE)
        return match[1] if match else ""
    return ""


def limits() -> dict[str, int | None]:
    """Return the limits. None: there is none, or it is not known."""
    shared = None
    with suppress(OSError):
        shared = shutil.disk_usage("/dev/shm").free
    return {
        "open files": _limit(resource.RLIMIT_NOFILE),
        "open files at most": _limit(resource.RLIMIT_NOFILE, hard=True),
        "processes": _limit(resource.RLIMIT_NPROC),
        "/dev/shm free": shared,
    }


def _limit(which: int, hard: bool = False) -> int | None:
    value = resource.getrlimit(which)[hard]
    return None if value == resource.RLIM_INFINITY else value


def variables() -> list[str]:
    """Return the names of relevant variables that are set; no values, and nothing that could be a secret."""
    return sorted(name for name in os.environ if VARIABLES.fullmatch(name) and not SECRET.search(name))


def waits() -> dict[str, bool]:
    """Return whether waits for Gloo can be seen, which takes the kernel, and ended, which takes torch's symbols."""
    gloo_waits = module("understudy.worker.transport.backends.gloo_waits")
    symbols = gloo_waits._gloo() is not None
    return {"symbols": symbols, "seen": symbols and gloo_waits.count() != UNKNOWN}


def lifeline() -> bool:
    """Return whether a lock opens when the thread that has it ends, as is needed for an agent to learn at once that a worker ends."""
    line, opened = Lifeline(None), list[bool]()
    holder = threading.Thread(target=line.hold)
    holder.start()
    holder.join()
    waiter = threading.Thread(target=lambda: opened.append(line.wait()), daemon=True)  # a lock that is not robust stays closed
    waiter.start()
    waiter.join(PATIENCE)
    return opened == [True]
