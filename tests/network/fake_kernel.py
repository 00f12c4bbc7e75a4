"""A kernel in memory, with two rails. It can refuse a change, or end in the middle of one, like a process that is killed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

from understudy.network.configuration import Network, of_options, seen_from_here
from understudy.network.kernel import KernelRefused, Link, Route

HOSTS = ["node0=10.72.0.1,10.1.0.1,10.2.0.1", "node1=10.72.0.2,10.1.0.2,10.2.0.2", "node2=10.72.0.3,10.1.0.3,10.2.0.3"]


class Killed(BaseException):
    """As if the process had ended here: nothing that handles this can change the kernel any more."""


@dataclass
class FakeKernel:
    link: dict[str, Link] = field(
        default_factory=lambda: {name: Link(number, True, True, "") for number, name in enumerate(("r1", "r2"), 2)}
    )
    address: list[tuple[str, str]] = field(default_factory=lambda: [("10.1.0.1", "r1"), ("10.2.0.1", "r2")])
    route: dict[str, Route] = field(default_factory=dict)
    settings: dict[str, str] = field(
        default_factory=lambda: {
            "net/ipv4/fib_multipath_hash_policy": "0",
            **{f"net/ipv4/conf/{rail}/{name}": "0" for rail in ("r1", "r2") for name in ("ignore_routes_with_linkdown", "rp_filter")},
        }
    )
    changes: int = 0
    refuse_at: int = 0  # the number of the change that is refused
    kill_at: int = 0
    at_kill: Callable[[], object] = lambda: None
    frozen: bool = False  # after the kill: nothing changes any more

    def everything(self) -> object:
        return copy.deepcopy((self.link, sorted(self.address), self.route, self.settings))

    def links(self) -> dict[str, Link]:
        return dict(self.link)

    def addresses(self) -> list[tuple[str, str]]:
        return list(self.address)

    def routes(self) -> dict[str, Route]:
        return dict(self.route)

    def add_bridge(self, name: str) -> None:
        self._change()
        assert name not in self.link
        self.link[name] = Link(len(self.link) + 2, True, False, "bridge")

    def remove_bridge(self, name: str) -> None:
        self._change()
        del self.link[name]

    def add_address(self, address: str, device: str) -> None:
        self._change()
        assert device in self.link and (address, device) not in self.address
        self.address.append((address, device))

    def remove_address(self, address: str, device: str) -> None:
        self._change()
        self.address.remove((address, device))
        self.route = {to: route for to, route in self.route.items() if route.source != address}  # as the real one does

    def set_route(self, route: Route) -> None:
        self._change()
        assert any(address == route.source for address, _ in self.address)
        self.route[route.destination] = route

    def remove_route(self, destination: str) -> None:
        self._change()
        del self.route[destination]

    def setting(self, name: str) -> str | None:
        return self.settings.get(name)

    def set_setting(self, name: str, value: str) -> None:
        self._change()
        self.settings[name] = value

    def network(self, hosts: list[str] = HOSTS) -> Network:
        return seen_from_here(of_options(hosts), self.address, "node0")

    def _change(self) -> None:
        self.changes += 1
        if self.changes == self.kill_at:
            self.frozen = True
            self.at_kill()
        if self.frozen:
            raise Killed
        if self.changes == self.refuse_at:
            raise KernelRefused("refused by the test")
