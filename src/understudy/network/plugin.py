"""Builds the network plugin for NCCL and RCCL from the sources in this package, and tells how to use it.

The result is in the user's cache, in a folder named by a digest of the sources, so an upgrade of Understudy never uses an old library.
The sources are in `netpath`; the top of its `wire.h` has the protocol, `sender.h` the rules of failover, `stats.h` the format of counters.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from understudy.messages import network_plugin

SOURCES = Path(__file__).parent / "netpath"
NCCL, RCCL = "libnccl-net-understudy.so", "librccl-net-understudy.so"
NAME = "Understudy"  # of the tables; a wrong NCCL_NET makes NCCL fail instead of falling back to another network in silence
SETTINGS = (
    "UNDERSTUDY_NET_IFNAME",
    "UNDERSTUDY_NET_SOCKETS",
    "UNDERSTUDY_NET_THREADS",
    "UNDERSTUDY_NET_CRC",
    "UNDERSTUDY_NET_GIVE_UP_S",
    "UNDERSTUDY_NET_STATS",
)


class PluginError(ValueError):
    """The plugin cannot be built, or is not there. The text is a message with a code."""


def default_folder(sources: Path = SOURCES, environment: Mapping[str, str] = os.environ) -> Path:
    """Return where the library of these sources is, or will be. Raises `PluginError` if there are no sources."""
    files = sorted(path for path in sources.glob("*") if path.suffix in (".cc", ".h") or path.name == "Makefile")
    if not files:
        raise PluginError(network_plugin.SOURCES_MISSING(folder=sources))
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    cache = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "understudy" / f"netpath-{digest.hexdigest()[:16]}"


def build(folder: Path, sources: Path = SOURCES, environment: Mapping[str, str] = os.environ) -> Path:
    """Compile the plugin into `folder`, unless it is there, and return the library for NCCL. Raises `PluginError`."""
    compiler = environment.get("CXX", "g++")
    missing = [name for name in ("make", compiler) if shutil.which(name, path=environment.get("PATH")) is None]
    if missing:
        raise PluginError(network_plugin.TOOL_MISSING(tools=" and ".join(missing)))
    command = ["make", "-C", str(sources), f"OUT={folder.absolute()}", f"CXX={compiler}"]
    done = subprocess.run(command, env=dict(environment), capture_output=True, text=True)
    if done.returncode != 0:
        output = " / ".join((done.stderr or done.stdout).splitlines()[:3])
        raise PluginError(network_plugin.BUILD_FAILED(command=" ".join(command), code=done.returncode, output=output))
    return library(folder)


def library(folder: Path, name: str = NCCL) -> Path:
    """Return the absolute path of a library that was built. Raises `PluginError` if it is not there."""
    found = folder.absolute() / name
    if not found.exists():
        raise PluginError(network_plugin.NOT_BUILT(folder=folder))
    return found


def variables(folder: Path, name: str = NCCL, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return what has to be set on each node for NCCL, or RCCL, to use the plugin; settings of the plugin that are set already stay.

    Raises `PluginError` if the library is not there.
    """
    own = {name: environment[name] for name in SETTINGS if environment.get(name)}
    return {"NCCL_NET_PLUGIN": str(library(folder, name)), "NCCL_NET": NAME, **own}
