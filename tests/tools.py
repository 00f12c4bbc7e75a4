"""Tools that some tests need and that a machine may not have."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SYSTEM = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])  # Debian's daemons are there


@dataclass(frozen=True)
class Tool:
    """`places`: the tests that are left out without it, as paths."""

    name: str
    there: Callable[[], bool]
    used_for: str
    places: tuple[str, ...]
    remedy: str


def _programs(*names: str) -> Callable[[], bool]:
    return lambda: all(shutil.which(name, path=SYSTEM) for name in names)


def _postgres() -> bool:
    """Return whether PostgreSQL's server is here. Debian keeps it out of the PATH."""
    return shutil.which("initdb") is not None or any(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


def _control_plane() -> bool:
    """Return whether kube-apiserver is in the folder KUBEBUILDER_ASSETS or on the PATH."""
    assets = Path(os.environ.get("KUBEBUILDER_ASSETS", ""))
    return _programs("kube-apiserver")() or any((assets / name).exists() for name in ("kube-apiserver", "kube-apiserver.xz"))


def _debian(*packages: str) -> str:
    return f"apt-get install {' '.join(packages)}"


TOOLS = (
    Tool(
        "Slurm",
        _programs("slurmctld", "slurmd", "slurmdbd", "sbatch", "mariadbd"),
        "jobs on a real cluster",
        ("tests/slurm",),
        _debian("slurmctld", "slurmd", "slurmdbd", "slurm-client", "mariadb-server"),
    ),
    Tool("etcd", _programs("etcd"), "jobs on a real control plane", ("tests/kubernetes",), _debian("etcd-server")),
    Tool(
        "Kubernetes' control plane",
        _control_plane,
        "jobs on it",
        ("tests/kubernetes",),
        "kube-apiserver, kube-scheduler and kube-controller-manager in a folder that KUBEBUILDER_ASSETS names",
    ),
    Tool("kubectl", _programs("kubectl"), "manifests", ("tests/kubernetes", "tests/schedulers"), "a kubectl on PATH"),
    Tool("PostgreSQL", _postgres, "shared journals", ("tests/integration", "tests/orchestrator"), _debian("postgresql")),
    Tool("nftables", _programs("nft", "nsenter"), "lost packets", ("tests/matrix", "tests/integration"), _debian("nftables", "util-linux")),
    Tool(
        "iproute2",
        _programs("ip", "tc", "unshare"),
        "several hosts",
        ("tests/integration", "tests/netpath"),
        _debian("iproute2", "util-linux"),
    ),
    Tool(
        "Prometheus",
        _programs("prometheus", "prometheus-node-exporter", "promtool"),
        "a real Prometheus",
        ("tests/integration",),
        _debian("prometheus", "prometheus-node-exporter", "prometheus-alertmanager"),
    ),
    Tool(
        "a C compiler",
        _programs("cc"),
        "a stand-in for NVIDIA's library",
        ("tests/detectors", "tests/integration"),
        _debian("gcc", "libc6-dev"),
    ),
    Tool("a C++ compiler", _programs("g++", "make"), "the network plugin", ("tests/netpath", "tests/network"), _debian("g++", "make")),
)
