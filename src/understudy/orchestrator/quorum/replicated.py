"""The journal of a job with several members.

The leader's entries go into the members' log first. Every member writes committed entries into the journal in its own run directory, which
therefore never contains anything that a majority does not have. Progress is written by the leader, in its own file; the final progress is
in every member's file.

An entry of the log is `begun` and the job's settings, or `event`, its time and the event as JSON, or `pages` of workers, or `over`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from understudy.common.page_view import PageView
from understudy.core.events import Event
from understudy.links.messages import decode_trusted, encode
from understudy.messages import quorums
from understudy.orchestrator.chain import Chain
from understudy.orchestrator.journal import JobJournal, Journal, read
from understudy.orchestrator.quorum.candidate import Candidate
from understudy.orchestrator.rows import Recorded, page
from understudy.orchestrator.settings import Settings

PAGES = 500  # in one entry


class Replicated(Journal):
    def __init__(self, place: Path, tell: Callable[[str], None]) -> None:
        super().__init__(place, tell)
        self.over = False  # a majority knows that the job has ended
        self._last: Mapping[str, PageView] = {}
        self._member: Candidate | None = None
        self._known = read(place)
        self._there = len(self._known.events) if self._known is not None else 0  # committed before this process began
        self._local: JobJournal | None = None
        self._settings: Settings | None = None
        self._chain = Chain()  # of committed entries; the same at each member
        self._events: list[tuple[float, Event]] = []  # committed, until this member leads

    def apply(self, entries: list[str]) -> None:
        """Apply the next committed entries."""
        for entry in entries:
            kind, _, content = entry.partition(" ")
            if kind == "begun":
                begun = json.loads(content)
                self._settings = Settings.from_json(begun["settings"])
                self._local = super().begin(self._settings, begun["request"], self._known.chain if self._known is not None else None)
            elif kind == "event":
                now, _, text = content.partition(" ")
                self._chain.add(self._chain.last.after(float(now), text))  # as proposed, the same in every version
                event, text = decode_trusted(text)
                assert self._local is not None and isinstance(event, Event)
                if self._member is None:
                    self._events.append((float(now), event))
                if self._there:
                    self._there -= 1
                else:
                    self._local.append(float(now), event, text)
            elif kind == "pages":
                assert self._local is not None
                self._local.progress({worker: page(text) for worker, text in json.loads(content).items()})
            elif kind == "over":
                self.over = True

    def lead(self, member: Candidate) -> Recorded | None:
        """Return the job's known state, now that this member leads. From now on, everything that is written here goes to all members."""
        self._member = member
        events, self._events = self._events, []
        if self._settings is None:
            return None
        pages = self._known.pages if self._known is not None else {}
        return Recorded(self._settings, "", events, pages, self._chain)

    def end(self) -> None:
        """End the job; every member may exit."""
        assert self._member is not None
        pages = [(worker, json.dumps(page._asdict())) for worker, page in self._last.items()]
        for start in range(0, len(pages), PAGES):
            self._member.propose("pages " + json.dumps(dict(pages[start : start + PAGES])))
        self._member.propose("over")

    def begin(self, settings: Settings, request: str = "", chain: Chain | None = None) -> JobJournal:
        assert self._member is not None
        if self._settings is None:
            self._member.propose("begun " + json.dumps({"settings": settings.to_json(), "request": request}))
        return _Replicated(self, self._member, self._chain, (self._settings or settings).identity)

    def mark(self, reached: Callable[[], None]) -> None:
        """Call `reached` when it is in this member's file, too."""
        assert self._member is not None
        self._member.mark(lambda: Journal.mark(self, reached))

    def progress(self, pages: Mapping[str, PageView]) -> None:
        self._last = pages
        if self._local is not None:
            self._local.progress(pages)


class _Replicated(JobJournal):
    strict = True

    def __init__(self, journal: Replicated, member: Candidate, chain: Chain, identity: str) -> None:
        self.identity = identity
        self.chain = chain
        self._journal = journal
        self._member = member
        self.obstacle = lambda: quorums.LOG_WAITS()

    def mark(self, reached: Callable[[], None]) -> None:
        """Call `reached` as soon as a majority has it."""
        self._member.mark(reached)

    def append(self, now: float, event: Event, encoded: str = "") -> None:
        self._member.propose(f"event {now!r} {encoded or encode(event)}")

    def progress(self, pages: Mapping[str, PageView]) -> None:
        self._journal.progress(pages)
