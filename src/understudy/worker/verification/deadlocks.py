"""Calls of this rank that wait for others in the first transaction after a recovery, and the thread that checks them for deadlocks.

`announcing` must not block a legal program. One rank may start operations on two groups in another order than another rank does, and
wait for them later; or a rank waits for a message that another one sends only after a collective. So a thread checks, ten times a
second, the waits that are not over at once. Each rank publishes what it waits for. If ranks wait for each other in a ring
(`verification.wait_cycles`), the checks stop on all ranks, and a warning is printed; unless each of them would wait in that place in
any case: then the script cannot go on, and that is a difference like any other, if no other thread of a rank helps within `PATIENCE`.

A rank that has reached its vote issues nothing more, and ranks that wait for it are notified. A rank that is only slow is waited for.

    first/standing/RANK    what a rank waits for, or that it votes
    first/over             why the checks have stopped, or what does not match; written by the first rank that finds it

Known limits: ranks of a script that wait for each other in another way (a file, a store of the script's) look slow; so the checks stop
after `PATIENCE`, if the script need not wait in that place itself.

A thread looks, instead of a limit for the wait itself, because torch's store prints to stderr at each limit that passes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from understudy.messages import newcomers
from understudy.messages.base import Text
from understudy.worker.encoding.messages import AwaitedCall, FirstStepStatus, pack, unpack
from understudy.worker.errors import GenerationAborted, PeerLost, UnderstudyError
from understudy.worker.transport.rendezvous import Rendezvous
from understudy.worker.verification.wait_cycles import ring

LOOK = 0.1  # seconds between two checks, and until the first
PATIENCE = 45.0  # seconds: less than the time without progress after which a rank counts as hung
PATIENCE_WITH_NEWCOMERS = 600.0  # if all that are missing are newcomers, which may have to compile first
FITS, UNLIKE, UNCHECKED = b"f", b"u", b"n"  # the first byte of a verdict; the rank that gives it, a colon and the reason follow
_OVER = "first/over"


@dataclass(eq=False)
class _BlockedCall:
    awaited: AwaitedCall
    verdict: str  # the key for which it waits; "": it waits in the library
    since: float


class BlockedCalls:
    """The waiting calls of this rank. `hold` and `refuse` from any thread, all else from the main thread."""

    def __init__(
        self,
        rank: int,
        newcomers: tuple[int, ...],
        connect: Callable[[], Rendezvous],
        stop: Callable[[], None],
        tell: Callable[[str], None],
    ) -> None:
        """Take the generation's parts. `connect` returns another client of its store. `stop` ends waits in the library. `tell` prints a
        line for the user.
        """
        self.over = False  # the checks have stopped
        self.mismatch = ""  # what does not match
        self._rank = rank
        self._newcomers = newcomers
        self._connect = connect
        self._stop = stop
        self._tell = tell
        self._blocked: list[_BlockedCall] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def hold(self, awaited: AwaitedCall, verdict: str = "") -> Iterator[bool]:
        """Register a call while the body waits for the key `verdict`, or in the library. Yields whether there is anything to wait for."""
        blocked = _BlockedCall(awaited, verdict, time.monotonic())
        with self._lock:
            self._blocked.append(blocked)
            if self._thread is None and not self.over:
                self._thread = threading.Thread(target=self._watch, name="understudy-blocked-calls", daemon=True)
                self._thread.start()
            due = not self.over
        try:
            yield due
        finally:
            with self._lock:
                self._blocked.remove(blocked)

    def read(self, verdict: bytes) -> None:
        """Read a verdict on this rank's calls. Raises `UnderstudyError` if they do not match."""
        if verdict[:1] == UNLIKE:
            self.mismatch = self.mismatch or _reason(verdict)
        elif verdict[:1] == UNCHECKED:
            self.over = True
        self.refuse()

    def refuse(self) -> None:
        """Raise `UnderstudyError` if a mismatch is known."""
        if self.mismatch:
            raise UnderstudyError(explained(self.mismatch, self._newcomers))

    def vote(self, client: Rendezvous) -> None:
        """Publish that this rank issues nothing more."""
        if not self.over:
            client.put(_status_key(self._rank), pack(FirstStepStatus(True, [])))

    def end(self) -> None:
        self._ended.set()

    def verdict(self, kind: bytes, text: str) -> bytes:
        return kind + f"{self._rank}:{text}".encode()

    # -- the thread ------------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        try:
            client = self._connect()
            while not self._ended.wait(LOOK) and not self.over:
                now = time.monotonic()
                with self._lock:
                    blocked = list(self._blocked)
                if old := [call for call in blocked if now - call.since >= LOOK]:
                    self._look(client, blocked, old, now)
        except (GenerationAborted, PeerLost):
            return  # ranks that wait are notified, too

    def _look(self, client: Rendezvous, blocked: list[_BlockedCall], old: list[_BlockedCall], now: float) -> None:
        if client.has(_OVER):
            self._obey(client, client.get(_OVER))
            return
        try:
            client.put(_status_key(self._rank), pack(FirstStepStatus(False, [call.awaited for call in blocked])))
            for call in old:
                if found := self._judge(client, call, now):
                    self._conclude(client, *found)
                    return
        except UnderstudyError as error:  # what another rank has written there cannot be read
            self._conclude(client, UNLIKE, str(error))

    def _judge(self, client: Rendezvous, call: _BlockedCall, now: float) -> tuple[bytes, str] | None:
        missing = []
        for rank in sorted(call.awaited.keys):
            if not client.has(call.awaited.keys[rank]):
                missing.append(rank)
            elif call.verdict and rank < self._rank:
                return None  # that one checks, for all that wait there
        if not missing or (call.awaited.unless and client.has(call.awaited.unless)):
            return None
        for rank in missing:
            # In this order: a call that it has not announced when it has voted, it never will.
            if (standing := _read(client, rank)) is not None and standing.voted and not client.has(call.awaited.keys[rank]):
                return UNLIKE, newcomers.VOTED_WITHOUT(rank=self._rank, call=call.awaited.shown, other=rank)
        if (found := self._ring(client)) and (found[0] == UNCHECKED or now - call.since > PATIENCE):
            return found
        patience = PATIENCE_WITH_NEWCOMERS if set(missing) <= set(self._newcomers) else PATIENCE
        if call.verdict and not call.awaited.bound and now - call.since > patience:
            return UNCHECKED, newcomers.WAITED(rank=self._rank, seconds=patience, other=missing[0], call=call.awaited.shown)
        return None

    def _ring(self, client: Rendezvous) -> tuple[bytes, str] | None:
        read: dict[int, list[AwaitedCall]] = {}

        def waits_for(rank: int) -> list[int]:
            standing = _read(client, rank)
            waits = read[rank] = []
            found = set()
            for awaited in standing.waits if standing is not None else []:
                missing = {other for other, key in awaited.keys.items() if not client.has(key)}
                if missing and not (awaited.unless and client.has(awaited.unless)):
                    waits.append(awaited)
                    found |= missing
            return sorted(found)

        ranks = ring(self._rank, waits_for)
        if not ranks:
            return None
        calls = "; ".join(f"rank {rank} in {read[rank][0].shown}" for rank in ranks)
        kind = UNLIKE if all(awaited.bound for rank in ranks for awaited in read[rank]) else UNCHECKED
        return kind, newcomers.WAIT_FOR_EACH_OTHER(ranks=_named(ranks), calls=calls)

    def _conclude(self, client: Rendezvous, kind: bytes, text: str) -> None:
        if self._ended.is_set():
            return
        mine = self.verdict(kind, text)
        stands = client.claim(_OVER, mine)
        if stands == mine and kind == UNCHECKED:
            self._tell(newcomers.NOT_CHECKED(why=text))
        self._obey(client, stands)

    def _obey(self, client: Rendezvous, verdict: bytes) -> None:
        with self._lock:
            self.over = True
            blocked = list(self._blocked)
        if verdict[:1] == UNLIKE:
            self.mismatch = self.mismatch or _reason(verdict)
        for call in blocked:
            if call.verdict:
                client.put(call.verdict, verdict)
            elif self.mismatch:
                self._stop()


def explained(found: str, ranks: tuple[int, ...]) -> Text:
    """Return the message about a difference. `ranks`: those of newcomers."""
    return newcomers.DOES_NOT_FIT(newcomers=f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}", found=found)


def _status_key(rank: int) -> str:
    return f"first/standing/{rank}"


def _read(client: Rendezvous, rank: int) -> FirstStepStatus | None:
    key = _status_key(rank)
    return unpack(FirstStepStatus, client.get(key)) if client.has(key) else None


def _reason(verdict: bytes) -> str:
    return verdict[1:].decode(errors="replace").partition(":")[2]


def _named(ranks: list[int]) -> str:
    first = ", ".join(map(str, ranks[:-1]))
    return f"ranks {first} and {ranks[-1]}" if first else f"rank {ranks[0]}"
