"""Read the kernel's log for failures of a node's hardware: new records, matched against the texts of `kernel_patterns`.

/dev/kmsg gives one record per read: `priority,sequence,microseconds,flags;text`, followed by lines that begin with a blank and
name the record's device. Only records of the facility 0 count: the kernel gives any other to text that a process writes into its log. Only
ASCII counts, because the kernel escapes all else.

The first look begins at the last `dmesg --clear`, or at boot if there was none. What has worn off since is not reported. Suspicions from
before `since`, the time at which the job began here, are reported in one note, and older notes not at all: the log reaches back for months,
a container sees that of its host, and the log does not show what was repaired, so an old machine check would drive every new job from the
node. What broke during the job counts, also for an agent that is restarted, perhaps because of it. An operator who clears the log
after a repair, or reboots the node, may let all of it count: `history = true` in the detectors' file.

Evidence of one kind and part is given once per look, with the number of records. A state (a link that is down) is given once it has lasted,
again as long as it lasts, each time valid for a little longer, and a last time when it ends, with the time of its end as `until`. If it
ends before it has lasted, only a note is given.

The times of records come from a clock that stops while the machine sleeps, and that is not synchronized: it may be minutes off after
months. A record that was not there in the look before is therefore no older than that look, whatever its time. In the first look, minutes
before and after `since` may be confused.

Known limits: a text of a kind that is not in the table is ignored. Records that were overwritten before they were read are lost, which is
reported in a note. A text that a driver does not end with a line break is there only once another follows. A container sees the log of its
host, including failures in parts that others use. A user who may load a kernel module can forge records.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from understudy.detectors.base import Evidence, NodeDetector, Severity, Subject
from understudy.detectors.kernel_patterns import HOUR, Meaning, meaning
from understudy.messages import kernel_log

KMSG = "/dev/kmsg"
RECORD = 16384  # bytes; the kernel's longest records have some 8,000
READS = 20000  # in one look; the rest is left for the next one
DETAIL = 300  # characters of a text that are reported
PIECES = 64  # of evidence that one look gives
STATES = 256  # links that are down at the same time; kinds and parts from before
NAMED = 3  # of them

_SEVERITIES = (Severity.LOST, Severity.SUSPECT, Severity.NOTE)
_ESCAPED = re.compile(rb"\\x([0-9a-f]{2})")


@dataclass(frozen=True)
class Record:
    facility: int  # the writer; 0: the kernel
    sequence: int
    seconds: float  # of the kernel's clock
    text: str


@dataclass
class _Seen:
    """Records of one kind and part."""

    meaning: Meaning
    first: float  # unix time
    last: float
    text: str
    last_text: str
    count: int = 1
    reported_until: float = 0.0  # of a state: until when it has been reported; 0: not yet

    def again(self, happened: float, text: str) -> None:
        self.last, self.last_text, self.count = happened, text, self.count + 1

    def evidence(self, until: float) -> Evidence:
        pattern, again = self.meaning.pattern, ""
        if self.count > 1:
            again = f" ({self.count} times" + (f", last: {_plain(self.last_text)})" if self.last_text != self.text else ")")
        detail = kernel_log.RECORD(record=_plain(self.text), again=again)
        kind, part = self.meaning.kind, self.meaning.part
        return Evidence(Kernel.name, pattern.subject, "", pattern.severity, detail, self.first, kind, part, until)


def parse(line: bytes) -> Record | None:
    """Return the record in a line of the log; None if there is none in it."""
    head, separator, text = line.partition(b";")
    fields = head.split(b",")
    if not separator or len(fields) < 3 or len(line) > RECORD or not line.isascii():
        return None
    if not all(len(field) <= 20 and field.isdigit() for field in fields[:3]):
        return None
    priority, sequence, microseconds = (int(field) for field in fields[:3])
    plain = _ESCAPED.sub(lambda found: bytes.fromhex(found[1].decode()), text)
    return Record(priority >> 3, sequence, microseconds / 1e6, plain.decode(errors="replace"))


def _plain(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text[:DETAIL])


def _open(path: str) -> io.RawIOBase:
    log = io.FileIO(path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY))
    with contextlib.suppress(OSError):  # a file or a pipe instead of the log
        log.seek(0, os.SEEK_DATA)
    return log


class Kernel(NodeDetector):
    name = "kernel"

    def __init__(
        self,
        path: str = KMSG,
        *,
        since: float = 0.0,
        open_log: Callable[[str], io.RawIOBase] = _open,
        clock: Callable[[], float] = time.time,
        uptime: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare the detector; the first look opens the log. `since`: unix time; 0: all records count. `uptime`: returns the seconds of a
        clock that began with the kernel's.
        """
        self._path, self._since, self._open_log, self._clock, self._uptime = path, since, open_log, clock, uptime
        self._lock = threading.Lock()  # the log is not closed while it is read
        self._log: io.RawIOBase | None = None
        self._rest = b""  # of a line whose end has not been read
        self._sequence = -1  # of the last record read
        self._overwritten = False  # records after it
        self._read_all_at = 0.0  # unix time of the last look, if it left nothing unread; else 0
        self._states: dict[tuple[str, str], _Seen] = {}
        self._before: dict[tuple[str, str], _Seen] = {}  # suspicions from before `since` that are not reported yet

    @classmethod
    def missing(cls, path: str = KMSG) -> str:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except FileNotFoundError:
            return kernel_log.ABSENT(path=path)
        except PermissionError:
            return kernel_log.FORBIDDEN(path=path)
        except OSError as error:
            return kernel_log.UNREADABLE(path=path, reason=error.strerror)
        try:
            status = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        if stat.S_ISDIR(status.st_mode) or (stat.S_ISCHR(status.st_mode) and status.st_rdev != os.makedev(1, 11)):
            return kernel_log.NO_LOG(path=path)
        return ""

    def close(self) -> None:
        with self._lock:
            if self._log is not None:
                self._log.close()
                self._log = None

    def look(self) -> list[Evidence]:
        with self._lock:
            return self._look()

    def _look(self) -> list[Evidence]:
        if self._log is None:
            self._log = self._open_log(self._path)
        now, earliest = self._clock(), self._read_all_at
        start = now - self._uptime()
        seen: dict[tuple[str, str, Severity], _Seen] = {}
        ended: list[Evidence] = []
        lost = 0
        for line in self._lines(self._log, now):
            record = parse(line)
            if record is None:
                continue
            if self._overwritten and self._sequence >= 0:  # before the first record it means only that the log is full
                lost += max(1, record.sequence - self._sequence - 1)
            self._sequence, self._overwritten = record.sequence, False
            found = meaning(record.text) if record.facility == 0 else None
            if found is None:
                continue
            happened, text = min(now, max(start + record.seconds, earliest)), record.text
            if found.pattern.clears:
                self._before.pop((found.kind, found.part), None)
                state = self._states.pop((found.kind, found.part), None)
                if state is None:
                    continue
                if state.reported_until:
                    ended.append(state.evidence(happened))
                    continue
                found, happened, text = _briefly(state.meaning), state.first, state.text
            elif happened < self._since:
                self._keep_for_note(found, happened, text, now)
                continue
            elif found.pattern.settles:
                self._begin(found, happened, text, now)
                continue
            _count(seen, found, happened, text)
        events = [one.evidence(one.last + hold if (hold := one.meaning.pattern.hold) else 0.0) for one in seen.values()]
        current = [one for one in events if not 0 < one.until <= now]
        return _bounded(ended + self._lasting(now) + current + _lost(lost, now) + self._from_before(now), now)

    def _lines(self, log: io.RawIOBase, now: float) -> Iterator[bytes]:
        self._read_all_at = 0.0
        for _ in range(READS):
            try:
                data = log.read(RECORD)
            except OSError as error:
                if error.errno not in (errno.EPIPE, errno.EINVAL):
                    raise
                self._overwritten = True  # EPIPE; or EINVAL: one was longer than any should be, and is skipped
                continue
            if not data:
                self._read_all_at = now
                return
            *lines, rest = (self._rest + data).split(b"\n")
            self._rest = rest[: RECORD + 1]  # a longer one stays too long to be a record, up to its end
            yield from lines

    def _begin(self, found: Meaning, happened: float, text: str, now: float) -> None:
        key = (found.kind, found.part)
        if (state := self._states.get(key)) is not None:
            state.again(happened, text)
        elif happened + found.pattern.hold > now and len(self._states) < STATES:
            self._states[key] = _Seen(found, happened, happened, text, text)

    def _keep_for_note(self, found: Meaning, happened: float, text: str, now: float) -> None:
        pattern, key = found.pattern, (found.kind, found.part)
        if pattern.severity is Severity.NOTE or (pattern.hold and not pattern.settles and happened + pattern.hold <= now):
            return
        if (known := self._before.get(key)) is not None:
            known.again(happened, text)
        elif len(self._before) < STATES:
            self._before[key] = _Seen(found, happened, happened, text, text)

    def _from_before(self, now: float) -> list[Evidence]:
        """Return one note about the time before `since`, when everything that was there has been read."""
        if not self._before or not self._read_all_at:
            return []
        before, self._before = list(self._before.values()), {}
        named = [f"{one.meaning.kind} {one.meaning.part}".strip() + f": {_plain(one.text)}" for one in before[-NAMED:]]
        more = f", and {len(before) - NAMED} more" if len(before) > NAMED else ""
        return [_note("log-before", kernel_log.BEFORE(records="; ".join(named), more=more), now)]

    def _lasting(self, now: float) -> list[Evidence]:
        reported = []
        for state in self._states.values():
            pattern = state.meaning.pattern
            if now - state.first >= pattern.settles and state.reported_until - now <= pattern.hold / 2:
                state.reported_until = now + pattern.hold
                reported.append(state.evidence(state.reported_until))
        return reported


def _count(seen: dict[tuple[str, str, Severity], _Seen], found: Meaning, happened: float, text: str) -> None:
    key = (found.kind, found.part, found.pattern.severity)
    if key in seen:
        seen[key].again(happened, text)
    else:
        seen[key] = _Seen(found, happened, happened, text, text)


def _briefly(found: Meaning) -> Meaning:
    """Turn a state that ended before it had lasted into a note."""
    return Meaning(replace(found.pattern, severity=Severity.NOTE, hold=HOUR), f"{found.kind}-briefly", found.part)


def _note(kind: str, detail: str, now: float) -> Evidence:
    return Evidence(Kernel.name, Subject.NODE, "", Severity.NOTE, detail, now, kind, "", now + HOUR)


def _lost(records: int, now: float) -> list[Evidence]:
    return [_note("log-overwritten", kernel_log.OVERWRITTEN(count=records), now)] if records else []


def _bounded(evidence: list[Evidence], now: float) -> list[Evidence]:
    """Return at most `PIECES`, the most severe first."""
    evidence = sorted(evidence, key=lambda one: _SEVERITIES.index(one.severity))
    if len(evidence) <= PIECES:
        return evidence
    return [*evidence[: PIECES - 1], _note("log-more", kernel_log.MORE(count=len(evidence) - PIECES + 1), now)]
