"""The census: what the script has changed since its set-up and did not register. It is found, given to newcomers, restored by a redo, or
reported.

Each is an entry like a registered value (`state.registry`), so all that applies to values applies to it: if it is the same on all
ranks, a newcomer gets it from them in a recovery, and nothing is done before; if it differs from rank to rank it goes with the vote; a
redo finds it as it was at begin. The search runs when all state is compared and in every recovery, never in between.

A newcomer is given no more than that: a name that it cannot take is reported, and never ends a job, because the script has not asked
for it.

Known limits: `walk.MOST` objects for one walk, counted and not timed, so that each rank sees the same; lists of more than
`leaves.LONGEST` items, and values of more than `leaves.LARGEST` bytes, are left out. What differs from rank to rank and changes between
a vote and the next begin is handed over again if it is made of tensors or is a generator (`verification.post_vote_changes`), and else
left alone and reported: it is mostly for people. What an iterator has given cannot be set: it is reported. What was changed before the
first walk that meets it, in an attempt that was interrupted, is restored in the first transactions only.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import CodeType, FrameType
from typing import Any

import torch

from understudy.messages import encoding
from understudy.worker.census import leaves, naming
from understudy.worker.census.attempted import FirstChanges, NotedChanges
from understudy.worker.census.baseline import Baseline
from understudy.worker.census.bindings import KINDS
from understudy.worker.census.carried import names_set_by_loops
from understudy.worker.census.naming import BEYOND, HISTORY, LARGE, LEFT, MOVED, RUNNING, UNREAD, UNSEEN
from understudy.worker.census.owners import is_keepable
from understudy.worker.census.reach import Changes, reach
from understudy.worker.census.roots import FRAME, RootKey, Roots, Table, names_in
from understudy.worker.census.running import Running, running_in
from understudy.worker.census.sketches import Sketch, is_same, sketch
from understudy.worker.census.stores import home, is_drawn, owner_of
from understudy.worker.census.walk import OPAQUE, Gone, Path, WalkResult, described_entry, look, read, write
from understudy.worker.encoding.codec import decode, encode
from understudy.worker.errors import BadMessage
from understudy.worker.state.unregistered import Item, is_unregistered

END, ENDS = 4 << 10, 256  # bytes of the end of a loop that are kept at most, and number of loops for which they are kept
NOTED = 3  # transactions at whose begin everything is noted
CLOSELY = 6  # transactions in which all is looked at after the begin, and at the vote: the first steps and sections
WATCHED = 1000  # entries at most
TOTAL = 1 << 20  # bytes of all that is watched
LONGEST = 200  # characters of a name in an incident
_ABSENT = b""


@dataclass(frozen=True)
class Noted:
    """The objects and their content, as of a begin."""

    objects: dict[str, tuple[Path, Any]]
    contents: dict[str, bytes]
    first_changes: NotedChanges | None = None


class Census:
    def __init__(
        self,
        covered: Callable[[], Callable[[Any], bool]],
        boundary: Container[CodeType],
        found_stream: Callable[[str, Any], None],
    ) -> None:
        """Take what the census depends on. `covered` returns, as of now, a test whether a thing is registered or belongs to a registered
        one. `boundary`: the codes that run a transaction. `found_stream` gets each generator of random numbers that the script
        has when its set-up is over, by name.
        """
        self._covered = covered
        self._roots = Roots(boundary)
        self._found_stream = found_stream
        self._ignored: set[str] = set()  # names that may be initial on a newcomer
        self._first: Baseline | None = None
        self._beyond = Changes({}, {})  # beyond the reach of a walk
        self._drawn: dict[str, bool] = {}  # whether the training draws from an iterator that does not show its position
        self._watched: dict[str, Path] = {}  # what has changed since then
        self._encoded_before: dict[str, tuple[Sketch, bytes]] = {}
        # What has changed and is not carried over, by kind and entry: see `naming.WHY`.
        self._uncovered: dict[str, dict[str, Path]] = {kind: {} for kind in (MOVED, LEFT, LARGE, UNREAD, BEYOND, HISTORY, UNSEEN)}
        self._running: dict[str, Running] = {}  # the same for counters that cannot be read
        self._past_notices = naming.PastNotices()
        self._inside = False  # in an iteration of a loop of the job, which is not done again
        self._first_changes = FirstChanges()
        self._begins = 0
        self._before = 0  # transactions of the job before this worker was a rank
        self.top: dict[str, bytes] = {}  # watched values, as of the top of the iteration
        self.after: dict[str, bytes] = {}  # ... and after the last transaction
        self.ends: list[dict[str, bytes]] = []  # ... and at the end of each loop that is over
        self.left: dict[str, bytes] = {}  # see `left_names`

    def ignore(self, names: Iterable[str]) -> None:
        """Ignore these names: they may be initial on a newcomer."""
        self._ignored |= set(names)

    def transaction(self, function: Callable[..., Any]) -> None:
        """Add a function that the script has made a transaction."""
        self._roots.add(function)

    def around(self, frame: FrameType | None) -> None:
        """Note the frame that contains a transaction whose code is a block of the script; None: it is over."""
        self._roots.around = frame

    # -- the walk ----------------------------------------------------------------------------------------------------------

    def set_up(self) -> None:
        """Record the baseline before the first loop or transaction. Changes count from now on. It is called at more places, of which the
        first one counts, as on a newcomer.
        """
        if self._first is not None:
            return
        self._find_streams()
        tables = self._roots.all()
        found = self._look(tables)
        self._beyond = Changes(reach(tables, found, self._covered()), tables)
        self._first = Baseline(found, self._chosen(found), {root for root in tables if root[0] == FRAME})

    def _find_streams(self) -> None:
        """Follow generators of random numbers like registered ones from now on."""
        for path, thing in self._look().leaves.values():
            if isinstance(thing, leaves.Stream):
                self._found_stream(f"{path.shown} ({path.root[1]})", thing)

    def _look(self, tables: Mapping[RootKey, Table] | None = None) -> WalkResult:
        return look(self._roots.all() if tables is None else tables, self._covered(), self._is_ignored)

    def _chosen(self, found: WalkResult) -> Iterator[tuple[str, Path, Any]]:
        """Return the entries that are compared, with their values."""
        set_first = self._roots.scopes().place.set_first
        for entry, (path, value) in found.leaves.items():
            names = set_first.get(path.root, frozenset())
            if names is None:
                self._uncovered[UNREAD].setdefault("", Path(path.root, ""))
            elif not (entry in self._uncovered[LEFT] or entry in self._uncovered[LARGE] or path.name in names):
                yield entry, path, value

    def _is_ignored(self, path: Path) -> bool:
        if not self._ignored:
            return False
        return path.name in self._ignored or path.shown in self._ignored or bool(path.steps and path.steps[-1][1] in self._ignored)

    def _look_closely(self) -> WalkResult:
        first = self._first
        if first is None:
            return WalkResult()
        with self._first_changes.walks.measured():
            return self._walk(first)

    def _walk(self, first: Baseline) -> WalkResult:
        tables = self._roots.all()
        found = self._look(tables)
        self._first_changes.look(found, self._roots)
        marks = reach(tables, found, self._covered())
        if (beyond := found.beyond or found.unreadable) is not None:
            self._uncovered[BEYOND].setdefault("", beyond)
        for entry, path, value in self._chosen(found):
            if leaves.is_large(value):
                if first.is_another(path, value):
                    self._uncovered[LARGE][entry] = path
                    self._watched.pop(entry, None)
            elif entry not in self._watched and first.has_changed(path, value):
                self._watch(entry, path, value)
        self._bound(found)
        if self._inside:
            moved = self._uncovered[MOVED]
            moved |= {entry: path for entry, (path, thing) in found.moving.items() if self._has_moved(entry, path, thing)}
            running = [one for frame in self._roots.scopes().frames for one in running_in(frame)]
            self._running |= {f"{one.where} {one.name}": one for one in running if one.name not in self._ignored}
        if found.beyond is None:
            self._find_unseen(self._beyond.since(marks, tables), found)
        return found

    def _watch(self, entry: str, path: Path, value: Any) -> None:
        if len(self._watched) >= WATCHED:
            self._uncovered[BEYOND].setdefault("", path)
        elif self._data_of(path, value):
            self._watched[entry] = path
        else:
            self._uncovered[LARGE][entry] = path

    def _find_unseen(self, changed: list[Path], found: WalkResult) -> None:
        """Keep what has changed and cannot be carried over. Iterators that move have their own notice."""
        scopes, reported = self._roots.scopes(), set(self._uncovered[MOVED].values())
        moving = {path: thing for path, thing in found.moving.values() if not isinstance(thing, OPAQUE)}
        for path in changed:
            if self._is_ignored(path) or scopes.is_set_each_iteration(path.root, path.name):
                continue
            of = next((way for way in (path, *path.owners()) if way in reported or way in moving), None)
            if of is None or not (of in reported or of == path or (self._first is not None and self._first.has_moved(of, moving[of]))):
                self._uncovered[UNSEEN][path.entry] = path

    def _find_histories(self, found: WalkResult) -> None:
        """Find, between two steps, what a step has from the one before. Within a step there are many."""
        if self._first is None or not found.histories:
            return
        scopes = self._roots.scopes()
        for entry, (path, tensor) in found.histories.items():
            if not self._first.has_kept(path, tensor) and not scopes.is_set_each_iteration(path.root, path.name):
                self._uncovered[HISTORY][entry] = path

    def _has_moved(self, entry: str, path: Path, thing: Any) -> bool:
        if isinstance(thing, OPAQUE):
            if entry not in self._drawn:
                self._drawn[entry] = is_drawn(path, self._as_it_is(path).owner, {one.__qualname__ for one in self._roots.functions})
            return self._drawn[entry]
        return self._first is not None and self._first.has_moved(path, thing)

    def _bound(self, found: WalkResult) -> None:
        """Limit the watched values, which are read several times in each step: drop the largest until the rest is small."""
        sizes = {entry: len(self._data_again(entry, *found.leaves[entry])) for entry in self._watched if entry in found.leaves}
        for entry in [entry for entry in sizes if leaves.is_large(found.leaves[entry][1])]:  # it has grown
            self._uncovered[LARGE][entry] = self._watched.pop(entry)
        total = sum(sizes.values())
        for entry in sorted(sizes, key=lambda entry: (-sizes[entry], entry)):
            if total <= TOTAL:
                return
            total -= sizes[entry]
            self._uncovered[LARGE][entry] = self._watched.pop(entry)

    # -- entries -----------------------------------------------------------------------------------------------------------

    def encoded(self, only: Container[str] | None, closely: bool) -> dict[str, bytes]:
        """Return what has changed since the set-up: all of it if `closely`, else what was found before."""
        if closely:
            self._look_closely()
        wanted = self._watched if only is None else {entry: path for entry, path in self._watched.items() if entry in only}
        if not wanted:
            return {}
        scopes, found = self._roots.scopes(), dict[str, bytes]()
        wanted = {entry: path for entry, path in wanted.items() if not scopes.is_set_each_iteration(path.root, path.name)}
        tables = self._roots.some({path.root for path in wanted.values()}, scopes)
        for entry, path in wanted.items():
            data = _ABSENT
            with contextlib.suppress(Gone):
                data = self._data_again(entry, path, read(path, tables))
            found[entry] = data or encode([path.encoded])
        return found

    def _data_again(self, entry: str, path: Path, value: Any) -> bytes:
        """Return the encoded value of something that is read several times in each step."""
        now, before = sketch(value), self._encoded_before.get(entry)
        if before is not None and now is not None and is_same(before[0], now):
            return before[1]
        data = self._data_of(path, value)
        if now is not None:
            self._encoded_before[entry] = now, data
        return data

    def _data_of(self, path: Path, value: Any) -> bytes:
        return (self._first or Baseline(WalkResult(), (), set())).data_of(path, value)

    def _tables(self, wanted: Mapping[str, Path]) -> dict[RootKey, Table]:
        return self._roots.some({path.root for path in wanted.values()})

    def load(self, entry: str, data: bytes) -> None:
        """Set an entry on a newcomer: in place where the others have the object of their set-up. Another object may be anything, such as a
        batch.
        """
        try:
            way, *rest = decode(data)
        except (ValueError, TypeError, RuntimeError) as error:
            raise BadMessage(encoding.MALFORMED_ENTRY(entry=entry, error=repr(error))) from error
        path = Path.decoded(way)
        self._watched.setdefault(entry, path)
        if len(rest) != 2 or path.entry != entry or self._roots.scopes().is_set_each_iteration(path.root, path.name):
            return
        tables = self._tables({entry: path})
        try:
            mine = read(path, tables)
        except Gone:
            mine = None
        if not leaves.is_leaf(mine):
            return  # something that must not be replaced
        same, value = rest
        try:
            new = leaves.put_into(mine if same or isinstance(mine, Enum) else None, value)
            if new is not mine:
                write(path, tables, new)
        except (Gone, leaves.Unfit, ValueError, TypeError, RuntimeError):  # another kind of value than is here
            self._uncovered[LEFT][entry] = path

    def is_set_by_a_loop(self, entry: str) -> bool:
        """Return whether it is a name that a loop of its scope sets in each iteration: what is read after the loop is in `left`."""
        root, shown = described_entry(entry)
        place = self._roots.source_of(root)
        return place is not None and re.split(r"[.\[]", shown)[0] in names_set_by_loops(*place)

    def leave(self, entry: str) -> bool:
        """Report that an entry differs from rank to rank and changes after the vote. Return whether it is left alone for that."""
        path = self._watched.get(entry)
        if path is None:
            return False
        try:
            if _is_handed_over(read(path, self._tables({entry: path}))):
                return False
        except Gone:
            pass
        self._uncovered[LEFT][entry] = self._watched.pop(entry)
        return True

    def join(self, top: dict[str, bytes], after: dict[str, bytes], transaction: int) -> None:
        """Take over, on a newcomer that is a rank from now on, what the ranks know."""
        self.top, self.after, self._before = top, after, transaction

    def at_top(self) -> None:
        """Record the top of an iteration."""
        self._inside = True
        if self.exact:
            self._find_histories(self._look_closely())
        self.top = self.encoded(None, closely=False)

    def committed(self) -> None:
        """Record the end of a transaction."""
        self._find_large()
        self.after = self.encoded(None, closely=self.exact)

    def look_at_names(self) -> None:
        """Watch what is bound to another object than at the last vote, from its first change on. Look at everything if it is time."""
        first = self._first
        if first is None:
            return
        if self._first_changes.walks.is_time():
            self._look_closely()
        here, covered = self._roots.scopes(), None
        frames = {path.root for path in self._watched.values() if path.root[0] == FRAME}
        for path, value in self._first_changes.bindings.rebound(self._roots.of_kinds(KINDS, here) | self._roots.some(frames, here)):
            entry = path.entry
            if any(entry in known for known in (self._watched, self._uncovered[LEFT], self._uncovered[LARGE])):
                continue
            if self._is_ignored(path) or here.is_set_each_iteration(path.root, path.name):
                continue
            covered = covered or self._covered()
            is_carried = not covered(value) and leaves.is_leaf(value, leaves.Room(leaves.ITEMS, covered)) and not leaves.is_large(value)
            if is_carried and first.has_changed(path, value):
                self._watch(entry, path, value)

    def _find_large(self) -> None:
        """Note a sibling of what changes that has become another large object in this transaction, as the next shard of the data: a walk
        may come much later.
        """
        owners = self._first_changes.owners
        found = [
            path
            for path, value in owners.rebound(self._roots.some(owners.scopes) if owners.scopes else {})
            if leaves.is_large(value) and not self._is_ignored(path)
        ]
        if found:
            here = self._roots.scopes()
            self._uncovered[LARGE] |= {path.entry: path for path in found if not here.is_set_each_iteration(path.root, path.name)}

    @property
    def exact(self) -> bool:
        """Return whether `top` and `after` contain all that had changed, not only what had been seen to change before: in the first
        iterations.
        """
        return self._before + self._begins < CLOSELY

    def at_end(self, loop: int) -> None:
        """Record the end of this loop of the job."""
        self._inside = False
        found = self.encoded(None, closely=True)
        self.ends += [{} for _ in range(loop - len(self.ends))]
        self.ends[loop:] = [found if sum(map(len, found.values())) <= END else {}]
        if loop >= ENDS:
            self.ends[loop - ENDS] = {}

    def news(self) -> list[str]:
        """Return the notices about what is in none yet."""
        new = {kind: self._past_notices.new(kind, paths) for kind, paths in self._uncovered.items()}
        notices: list[str] = [
            naming.notice(kind, [self._as_it_is(self._uncovered[kind][entry]) for entry in found]) for kind, found in new.items() if found
        ]
        if self._past_notices.new(RUNNING, self._running):
            notices.append(naming.loop_notice(list(self._running.values())))
        return notices

    def _as_it_is(self, path: Path) -> naming.Uncovered:
        """Return the path with its present value, if there is one."""
        tables, holder = self._roots.some({path.root}), owner_of(path)
        thing, owner = None, None
        with contextlib.suppress(Gone):
            owner = type(read(holder, tables)) if holder is not None else None
            thing = read(path, tables)
        return naming.Uncovered(path, thing, owner)

    def listed(self, known: Iterable[str]) -> list[Item]:
        """Return everything that is known about unregistered values: carried over, left out, or reported."""
        data, found = self.encoded(None, closely=False), []
        for entry in {*data, *filter(is_unregistered, known)}:
            root, name = described_entry(entry)
            _, *rest = decode(data[entry]) if entry in data else (b"",)
            found.append(Item(entry, name, home(root), "adopted", len(rest[-1]) if rest else 0))
        for kind, paths in self._uncovered.items():
            found += [Item("", path.shown, home(path.root), kind, 0, naming.WHY[kind]) for path in paths.values()]
        found += [Item("", one.name, one.where, RUNNING, 0, naming.WHY[RUNNING]) for one in self._running.values()]
        return found + [Item("", name, "", "ignored", 0, "job.ignore") for name in sorted(self._ignored)]

    def uncovered(self, most: int) -> tuple[str, ...]:
        """Return the values that are not carried over, with their places: first what transactions name, then by name."""
        named = {name for function in self._roots.functions for name in names_in(function.__code__)}
        found = {
            (path.name not in named, f"{path.shown or kind} ({home(path.root)})")
            for kind, paths in self._uncovered.items()
            for path in paths.values()
        }
        every = sorted(found | {(True, f"{one.name} ({one.where})") for one in self._running.values()})
        return tuple(text[:LONGEST] for _, text in every[:most])

    # -- redo --------------------------------------------------------------------------------------------------------------

    def note(self) -> Noted:
        """Note the values at begin."""
        self._begins += 1
        if self._first is None:
            return Noted({}, {})
        if self._begins <= NOTED:
            found = self._look()
            if not self._inside:
                self._find_histories(found)
            mutable = [(entry, path, value) for entry, path, value in self._chosen(found) if not leaves.is_bound(value)]
            objects = {entry: leaf for entry, leaf in found.leaves.items() if not leaves.is_large(leaf[1]) or is_keepable(leaf[1])}
            self._first_changes.look(found, self._roots)
            contents = {entry: self._data_again(entry, path, value) for entry, path, value in mutable}
            return Noted(objects, contents, self._first_changes.begin(self._roots, {}))
        # What is not carried over is restored, too.
        left = self._uncovered[LEFT]
        changed = {**self._watched, **left, **self._uncovered[LARGE]}
        tables, objects, contents = self._tables(changed), {}, {}
        for entry, path in changed.items():
            try:
                value = read(path, tables)
            except Gone:
                continue
            if entry in self._watched or is_keepable(value):
                objects[entry] = path, value
            if entry in left and not leaves.is_bound(value):
                contents[entry] = self._data_again(entry, path, value)
        return Noted(objects, contents, self._first_changes.begin(self._roots, changed))

    def restore(self, noted: Noted, values: Mapping[str, bytes]) -> None:
        """Restore the noted objects and their content: as noted, or as of `values`."""
        tables = self._roots.some({path.root for path, _ in noted.objects.values()})
        for path in noted.first_changes.restore(tables, self._is_ignored) if noted.first_changes is not None else ():
            if path.entry not in self._watched:  # which has the content
                self._uncovered[UNSEEN][path.entry] = path
        for entry, (path, thing) in noted.objects.items():
            try:
                if read(path, tables) is not thing:
                    write(path, tables, thing)
            except (Gone, ValueError):
                continue
            data = noted.contents.get(entry) or values.get(entry)
            if data is not None and not leaves.is_bound(thing) and self._data_of(path, thing) != data:
                _, *rest = decode(data)
                leaves.put_into(thing, rest[1], own=True) if rest else None


def _is_handed_over(value: Any) -> bool:
    """Return whether a change after the vote matters enough to be sent once more."""
    if isinstance(value, list | tuple):
        return any(map(_is_handed_over, value))
    return isinstance(value, torch.Tensor | leaves.Stream)
