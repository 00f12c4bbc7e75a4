"""The port to the backends of process groups: a `Backend` is a kind of communicator whose groups survive the loss of a rank.

A `Communicator` is one backend inside one process group. It is torch's object (`ProcessGroup._get_backend` returns it), with some more
methods. A `Backend` makes them: for groups that the script makes, by taking the place where torch looks for the class (`install`), and
for groups whose communicator was lost with a peer (`connect`).

Other packages add backends by entry points of the group `understudy.backends`, each of which is a class derived from `Backend`;
`tests/contract` shows what every one has to do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from torch._C._distributed_c10d import Store

from understudy.common.page_view import UNKNOWN

CONNECTED_AGAIN = "communicators that can be connected again after a loss"  # why torch's are replaced


class Communicator(Protocol):
    """Connects the members of one process group, and can be broken from outside and replaced in place.

    Its collectives are torch's own methods. They may raise anything once a peer is lost; they need not notice it.
    """

    def abort(self) -> None:
        """Make every pending and later operation fail soon, in the thread that waits for it. From any thread, also while the main thread
        is in a collective, and also twice. Does not block. Peers need not notice: every member aborts its own.
        """

    def closed(self) -> bool:
        """Return, after `abort` and from any thread, whether nothing that has happened meanwhile can wake a waiter any more. A thread that
        still waits then has been forgotten. True for a communicator that forgets no waiters.
        """

    def drain(self) -> None:
        """Return, after `abort` and on the main thread, when nothing of this communicator can write into memory any more. Does not wait
        for peers. None of these methods is called after that, unless `Backend.connect` joins it again; the object lives on, so what it
        has opened should be closed by then.
        """

    def is_broken(self) -> bool:
        """Return whether a peer is known to be lost. Called on the main thread, before every vote, so it takes microseconds. A
        communicator that cannot know it returns False, and its operations raise errors that `Backend.classify_error` knows.
        """

    def _get_sequence_number_for_group(self) -> int:
        """Return how many collectives were issued, counted from the same number on every member. From any thread. (The name is torch's.)"""


class Waker(Protocol):
    """Ends waits that a backend has forgotten: between an abort and the moment when the main thread has released the old communicators,
    every wait in them is for an operation that cannot complete. An operation that is ended so seems to have succeeded, with any
    content.
    """

    @property
    def woken(self) -> int:
        """Return how many waits were ended so far."""

    def start(self) -> None:
        """Start when a generation is being aborted, perhaps again. From any thread. Does not block."""

    def stop(self) -> None:
        """Stop: after it no wait of a new generation is ended. From any thread."""


class Host(Protocol):
    """The process, as a backend sees it. One for each backend; its methods are called from the thread in which a communicator is made."""

    @property
    def own_port(self) -> int | None:
        """Return a local port whose connections are not of a communicator: this process serves a store there."""

    def world(self, store: Store, rank: int, size: int) -> tuple[Store, int, int]:
        """Return the arguments with which to make a communicator: `store`, `rank` and `size`, or, in a newcomer's set-up, a world of its
        own, without peers, in which every collective returns the input of this rank.
        """

    def keep(self, communicator: Communicator) -> None:
        """Keep a communicator alive once it is made: torch only refers to the C++ half."""


class Backend(ABC):
    """A kind of communicator. One object of it lives as long as the process."""

    name: str  # in small letters: the value that a script passes to `init_process_group`
    adds_up_on_host = False  # whether a sum over CPU tensors shows the order in which it adds up

    def available(self) -> bool:
        """Return, before `install`, whether it can work in this process."""
        return True

    @abstractmethod
    def install(self, host: Host) -> None:
        """Install the backend, on the main thread, once, before the first process group: from now on torch makes communicators of this
        backend wherever a script asks for `name`, with the store, rank and size that `host.world` returns, and each is passed to
        `host.keep`.
        """

    @abstractmethod
    def connect(self, store: Store, rank: int, size: int, last: Communicator, inherits: bool) -> Communicator:
        """Return a communicator for the group that had `last`, which was aborted and drained, or was made without peers. Called on a
        thread that is abandoned when the generation ends meanwhile. All members call it, with the same `store`, in the same order of
        groups. It may block for as long as a peer is missing. A communicator that is made here is passed to `host.keep` like any other.

        It has the settings of `last` (timeout, options). What else `last` leaves, as threads or devices, it takes over only if it
        `inherits`: else an earlier call for this group was abandoned, and may still be at work with them. It may be `last` itself,
        joined with its new peers, on the same condition; members need not all do that.
        """

    def rejoins(self) -> bool:
        """Return whether `connect` returns `last`, if it can."""
        return False

    def waits(self, still: float = 0.0, since: int = 0) -> int:
        """Return how many operations of this process wait for peers in communicators of this kind; `UNKNOWN` if that cannot be known.
        Called from threads of the runtime, some five times a second while the main thread sleeps. Changes nothing.

        `still`: seconds for which the process is known to have made no progress; a backend may then check more closely. `since`: unix
        time in nanoseconds of the last abort, before which nothing counts.
        """
        return UNKNOWN

    def waker(self, closed: Callable[[], bool]) -> Waker | None:
        """Return the waker, on the main thread, once: None for a backend that forgets no waiters. `closed`: whether `Communicator.closed`
        is true for all.
        """
        return None

    def classify_error(self, error: BaseException) -> bool:
        """Return, on the main thread, whether `error` can only come from a communicator of this kind that has lost a peer. False for what
        `Communicator.is_broken` shows anyway, and for the errors of others.
        """
        return False
