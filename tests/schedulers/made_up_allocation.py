"""An allocation of no scheduler: it answers as a test wants, and records its calls."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from understudy.schedulers.base import Allocation, ClaimedNode, NodeSeen, Place, Work


def place(count: int, number: int = 0, labels: tuple[tuple[str, str], ...] = ()) -> Place:
    nodes = tuple(f"n{each}" for each in range(count))
    addresses = tuple(f"10.0.0.{each}" for each in range(min(count, 3)))
    return Place("made up", "made-up-7", nodes, number, addresses, tuple(20000 + each for each in range(len(addresses))), labels)


class MadeUp(Allocation):
    def __init__(self, count: int = 3, number: int = 0, labels: tuple[tuple[str, str], ...] = ()) -> None:
        self.place = place(count, number, labels)
        self.recorded: list[tuple[object, ...]] = []
        self.seen: dict[str, NodeSeen] = {name: NodeSeen(name, "allocated") for name in self.place.nodes}
        self.held: dict[int, ClaimedNode] = {}
        self.fails: dict[str, Exception] = {}  # by the name of the call
        self.cannot: set[str] = set()  # nodes that cannot be given back

    def _call(self, name: str, *words: object) -> None:
        if name in self.fails:
            raise self.fails[name]
        self.recorded.append((name, *words))

    def calls(self, *names: str) -> list[tuple[object, ...]]:
        """The calls since the last query for the same names."""
        found = [call for call in self.recorded if call[0] in names]
        self.recorded = [call for call in self.recorded if call[0] not in names]
        return found

    def share(self, secret: str) -> None:
        self._call("share", secret)

    def shared(self, seconds: float) -> str:
        self._call("shared", seconds)
        return "hush"

    def look(self) -> Sequence[NodeSeen]:
        self._call("look")
        return list(self.seen.values())

    def record(self, text: str) -> None:
        self._call("record", text)

    def release(self, nodes: Collection[str], text: str) -> Sequence[str]:
        self._call("release", *sorted(nodes))
        released = [node for node in sorted(nodes) if node not in self.cannot]
        for node in released:
            self.seen.pop(node, None)
        return released

    def drain(self, nodes: Collection[str], reason: str) -> None:
        self._call("drain", *nodes, reason)

    def claim(self, number: int, work: Work, avoid: Collection[str], near: str, text: str) -> None:
        self._call("claim", number, *sorted(avoid))
        self.held[number] = ClaimedNode()

    def claims(self) -> Mapping[int, ClaimedNode]:
        self._call("claims")
        return dict(self.held)

    def give_back(self, number: int) -> None:
        self._call("give_back", number)
        self.held.pop(number, None)

    def give_all_back(self) -> None:
        self._call("give_all_back")
        self.held.clear()

    def record_claim(self, number: int, text: str) -> None:
        self._call("record_claim", number, text)

    def finish(self, missing: Collection[str]) -> None:
        self._call("finish", *sorted(missing))
