"""Read labels of Prometheus and of its Alertmanager: the node that they name, and the part of it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping

from understudy.messages import alertmanager

PART_LABELS = ("gpu", "device")


class Unnamed(ValueError):
    """A label names no known node; the text gives the reason."""


def without_port(instance: str) -> str:
    """ "node7:9100" is node7, "[::1]:9100" is ::1."""
    host, _, port = instance.rpartition(":")
    bare = host if host and port.isdecimal() and (":" not in host or host.endswith("]")) else instance
    return bare.removeprefix("[").removesuffix("]")


def first_of(labels: Mapping[str, str], wanted: Collection[str]) -> tuple[str, str]:
    """Return the first of these labels that is not empty, and its value; two empty texts if there is none."""
    return next(((label, labels[label]) for label in wanted if labels.get(label)), ("", ""))


def part_of(label: str, value: str) -> str:
    """Return a node's own name for a part: gpu="3" is "gpu3"."""
    return f"gpu{value}" if label == "gpu" and re.fullmatch(r"[0-9]{1,9}", value) else value


class KnownNodes:
    """Find nodes by the names that others give them."""

    def __init__(self, nodes: Mapping[str, Collection[str]]) -> None:
        """Index nodes. `nodes`: the addresses of each, by name."""
        self._names = frozenset(nodes)
        self._addresses: dict[str, set[str]] = {}
        self._hosts: dict[str, set[tuple[str, str]]] = {}  # by the first part of a host name: the whole of it, and its node
        for name, addresses in nodes.items():
            for address in addresses:
                self._addresses.setdefault(address, set()).add(name)
            for host in (name, *addresses):
                if not _is_address(host):
                    self._hosts.setdefault(host.partition(".")[0], set()).add((host, name))

    def find(self, name: str) -> str:
        """Return the name of the one node that is meant: by its name, by its address, or by the first part of a host name where either side
        has no more than that: node7 is node7.a.org, which is not node7.b.org. Raises `Unnamed`.
        """
        if name in self._names:
            return name
        found = self._addresses.get(name, set())
        if not found and not _is_address(name):
            first, _, domain = name.partition(".")
            found = {node for host, node in self._hosts.get(first, ()) if not domain or host == first}
        if len(found) == 1:
            return next(iter(found))
        if found:
            raise Unnamed(alertmanager.AMBIGUOUS_NODE(name=name[:200], nodes=" or ".join(sorted(found)[:3])))
        raise Unnamed(alertmanager.UNKNOWN_NODE(name=name[:200]))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
