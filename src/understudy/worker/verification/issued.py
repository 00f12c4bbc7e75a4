"""Notes the inputs of a rank's collectives in every attempt at a transaction, and compares them in a redo.

A survivor nearly always waits in a collective when a rank is lost. Its inputs to that collective, and to those before, are known. The
redo must issue the same collectives with the same inputs, as far as the interrupted attempt had come. So every attempt notes one entry
for each collective that it issues up to its vote: the call, and a digest of what the operator reads on this rank, taken before it runs.
Entries are compared at the vote, lane by lane (`collectives.calls`). A difference goes with the vote (`redo`).

Of several attempts all later ones are compared with the first that reached an entry. But only what the first attempt of all had issued
is evidence: two redos may both be wrong in the same way. On a newcomer the evidence is what the lost worker had sent (`trails`).

A difference is *sure* if the same call is issued in every step, and its numbers differ in the redo. Other differences may have no
effect: what is issued now and then carries times or counts for a person, and a script that catches the error of a broken collective
takes another path.

Collectives are not noted once the generation is over or one has failed, because their inputs may come from a broken one; the first of
an attempt always is, because nothing came before it. Collectives of threads that the script has started are not noted either, because
they do not keep step with it. If a framework issues others in a redo, as DDP's static graph does, nothing is compared.

Known limits: of sparse tensors only types and shapes are compared. Large tensors are sampled (`samples`), so a difference in a few
elements may be missed. That a wait in C++ has failed is not seen before the generation is over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch.distributed import Work

from understudy.messages import calls
from understudy.worker.collectives.calls import arguments_of, given_to, lane_of, moved_objects
from understudy.worker.collectives.interception import FROM_ROOT, Collective, Kernels
from understudy.worker.encoding.digests import digest_bytes
from understudy.worker.generation.context import RankContext
from understudy.worker.participant import Participant, Step
from understudy.worker.state.registry import State
from understudy.worker.state.tensors import local_tensor
from understudy.worker.verification.device_samples import STRIDE, DeviceSample, DeviceSamples
from understudy.worker.verification.entries import NOTHING_COMPARED, Entry, Lanes, RedoCompared, address, code_of
from understudy.worker.verification.samples import readable, sampled
from understudy.worker.verification.trails import LateMarks, Mark, Trail, marks_in

_NOWHERE = frozenset[int]()
_UNREAD = [(torch.uint8, torch.Size(()))]  # given, in place of objects
_OF_OBJECTS = (torch.uint8, torch.int64)  # the types as which torch sends objects, and their sizes


@dataclass
class Found:
    """The result of the comparison of an attempt that has reached its vote; empty if there was nothing to compare with."""

    compared: RedoCompared = NOTHING_COMPARED
    evident: bool = False  # at least one matching input depends on the state; that of a barrier does not
    difference: str = ""  # the first one
    sure: bool = False  # it is certain to matter


@dataclass
class _Attempt:
    """The running attempt."""

    entries: Lanes = field(default_factory=dict)
    issued: int = 0
    cut: bool = False  # not all of it is noted
    redone_otherwise: bool = False  # its redo issues other collectives
    on_their_way: list[Entry] = field(default_factory=list)  # with samples that have not arrived
    frozen: bool = False  # what has not arrived may follow a broken collective
    found: Found = field(default_factory=Found)


class IssuedCollectives(Kernels, Participant):
    first: ClassVar[bool] = True  # a collective counts as issued even if another client rejects it

    def __init__(self, context: RankContext) -> None:
        self._membership, self._progress, self._rank_state = context.membership, context.progress, context.rank_state
        self._lock = threading.Lock()  # autograd has its own threads
        self._thread = 0  # the one that runs transactions
        self._noting = False
        self._attempt = _Attempt()
        self._trail = Trail(context.membership)
        self._samples = DeviceSamples()
        self._late = LateMarks(self._send_late)
        self._before: Lanes = {}  # of attempts that were interrupted
        self._original: dict[str, int] = {}  # how many of them, by lane, are of the first one
        self._of_lost: dict[int, list[Mark]] | None = None  # on a newcomer in its first transaction: marks of the lost worker, by lane
        self._usual: dict[str, Lanes] = {}  # by function: of its last step that was committed; the last one last

    @property
    def found(self) -> Found:
        """Return the findings of the attempt that has reached its vote."""
        return self._attempt.found

    @property
    def is_new(self) -> bool:
        """Whether this is the first transaction of a newcomer."""
        return self._of_lost is not None

    @property
    def untouched(self) -> bool:
        """Return whether the running attempt has issued nothing, so that nothing of it comes from others."""
        return not self._attempt.issued and not self._attempt.cut

    @property
    def sequence(self) -> int:
        """Return a digest of the calls of the last step, without the members of groups; 0: there was none."""

        def shown(entry: Entry) -> tuple[str, list[tuple[str, int]]]:
            given = [] if entry.operator in FROM_ROOT else entry.given
            return entry.operator, [(str(kind), len(shape)) for kind, shape in given]  # sizes may depend on the data

        if not self._usual:
            return 0
        lanes = self._usual[next(reversed(self._usual))]
        return digest_bytes(repr(sorted([shown(entry) for entry in lane] for lane in lanes.values())).encode()) >> 1

    def adopt(self, trail: bytes) -> None:
        """Adopt the lost worker's trail on a newcomer. Raises `BadMessage`."""
        lanes: dict[int, list[Mark]] = {}
        for mark in marks_in(trail, self._progress.transaction):
            lanes.setdefault(mark.lane, []).append(mark)
        self._of_lost = lanes

    # -- a transaction -----------------------------------------------------------------------------------------------------

    def begin(self, step: Step) -> None:
        self._before, self._original = {}, {}  # those of a transaction whose error the script has caught

    def attempt(self, step: Step) -> None:
        if step.alone:
            return
        if step.skipped:
            self._before, self._original, self._of_lost = {}, {}, None
        if not self.installed:
            self.install()
        self._thread = threading.get_ident()
        redone = step.attempt > 0 or self.is_new  # a newcomer's calls are not the usual ones
        otherwise = self._rank_state.frameworks.redoes_otherwise()
        with self._lock:
            self._samples.restart()
            self._trail.begin(self._progress.transaction, silent=redone or otherwise)
            self._attempt, self._noting = _Attempt(redone_otherwise=otherwise), True

    def freeze(self) -> None:
        """Keep what has arrived from devices by now, right before the communicators are broken: streams go on after that. Any thread."""
        with self._lock:
            self._trail.stop()
            self._settle()
            self._attempt.frozen = True

    def _settle(self) -> None:
        """Take what has arrived from devices. Under the lock."""
        attempt = self._attempt
        if not attempt.frozen:
            for entry in attempt.on_their_way:
                entry.settle()
            attempt.on_their_way = [entry for entry in attempt.on_their_way if entry.on_its_way]

    def _send_late(self) -> bool:
        """Send the marks of what has arrived from devices; return whether more may arrive. Any thread."""
        with self._lock:
            self._settle()
            self._trail.tell()
            return bool(self._attempt.on_their_way) and not self._attempt.frozen

    def before_vote(self, step: Step) -> None:
        self._noting = False
        with self._lock:
            self._trail.end()
            if self._before or self._of_lost:
                self._settle()  # the device has reached this point (`DeviceTimes.before_vote`)
        if self._before or self._of_lost:
            self._compare()

    def failed(self, step: Step, error: BaseException) -> None:
        self._noting = False
        with self._lock:
            self._trail.stop()

    def rollback(self, step: Step) -> None:
        with self._lock:
            self._settle()
            for lane, entries in self._attempt.entries.items():
                for entry in entries:
                    if entry.on_its_way:
                        entry.digests.clear()  # its stream may have gone on after an earlier collective was broken
                known = self._before.setdefault(lane, [])
                if not step.attempt:
                    self._original[lane] = len(entries)
                known += entries[len(known) :]

    def again(self, step: Step) -> None:
        if self._attempt.redone_otherwise:
            self._before = {}

    def committed(self, step: Step) -> None:
        self._before, self._of_lost = {}, None
        if step.kind == "step":
            self._usual.pop(step.function, None)
            self._usual[step.function] = self._attempt.entries

    # -- its collectives ---------------------------------------------------------------------------------------------------

    def call(self, collective: Collective, operate: Callable[[], Any]) -> Any:
        if not self._noting or not self._is_of_step() or (self._attempt.issued and self._membership.aborted()):
            return operate()
        try:
            self._note(collective)
        except Exception:  # a kind of tensor, or of object, that cannot be read: this must not disturb the script's collective
            self._attempt.cut, self._noting = True, False
            return operate()
        try:
            return operate()
        except BaseException:
            self._attempt.cut, self._noting = True, False
            raise

    def wait(self, work: Work, wait: Callable[[], Any]) -> Any:
        try:
            return wait()
        except BaseException:
            if self._is_of_step():
                self._attempt.cut, self._noting = True, False
            raise

    def _is_of_step(self) -> bool:
        """Whether this thread runs the transaction, or is one of autograd's for it."""
        return threading.get_ident() == self._thread or isinstance(threading.current_thread(), threading._DummyThread)

    def _note(self, collective: Collective) -> None:
        attempt, lane, entry = self._attempt, lane_of(collective), self._entry(collective)
        with self._lock:
            attempt.issued += 1
            entries = attempt.entries.setdefault(lane, [])
            entries.append(entry)
            number = len(entries) - 1
            if entry.on_its_way:
                attempt.on_their_way.append(entry)
                self._late.expect()
            self._trail.add(lambda: self._mark(lane, number, entry))

    def _mark(self, lane: str, number: int, entry: Entry) -> Mark | None:
        if entry.on_its_way:
            return None
        usual = self._usual.get(self._progress.function, {}).get(lane, ())
        return Mark(code_of(lane), entry.code, entry.mark, entry.size, number < len(usual) and usual[number].code == entry.code)

    def _entry(self, collective: Collective) -> Entry:
        given, arguments, order = given_to(collective), arguments_of(collective), self._attempt.issued
        if given and given[0].dtype in _OF_OBJECTS and (objects := moved_objects()) is not None:
            if not objects:  # they cannot be read
                return Entry(order, collective.operator, arguments, _UNREAD, [], 1, _NOWHERE)
            # Equal objects may have pickles of different sizes, so the size is no evidence.
            return Entry(order, collective.operator, arguments, [], [objects], 1, _NOWHERE)
        offset = self._progress.transaction % STRIDE
        digests = [self._digest(tensor, offset) for tensor in given]
        known = [one for one in digests if one is not None]
        kinds = [(tensor.dtype, tensor.shape) for tensor in given]
        memory = frozenset(map(address, given)) if self._before else _NOWHERE  # needed only in a redo
        size = sum(tensor.nbytes for tensor in given if tensor.layout is torch.strided)
        return Entry(order, collective.operator, arguments, kinds, known if len(known) == len(given) else [], size, memory)

    def _digest(self, tensor: torch.Tensor, offset: int) -> int | DeviceSample | None:
        if not readable(tensor):
            return None
        return sampled(tensor, offset) if tensor.device.type == "cpu" else self._samples.take(tensor, offset)

    # -- compared ----------------------------------------------------------------------------------------------------------

    def _compare(self) -> None:
        """Compare all that was issued up to the vote."""
        attempt = self._attempt
        differences: list[tuple[int, str, bool]] = []
        same, size, evident = 0, 0, False
        for lane, entries in attempt.entries.items():
            before, marks = self._before.get(lane, []), (self._of_lost or {}).get(code_of(lane), [])
            for number, entry in enumerate(entries):
                ours = self._difference(lane, number, entry, before[number]) if number < len(before) else None
                theirs = _difference_from_lost(lane, number, entry, marks[number]) if number < len(marks) else None
                differences += [(entry.order, *one) for one in (ours, theirs) if one is not None and one[0]]
                counts = theirs if self.is_new else ours if number < self._original.get(lane, 0) else None
                if entry.is_read and counts == ("", False):
                    same, size, evident = same + 1, size + entry.size, evident or bool(entry.digests)
        every = [entry for entries in attempt.entries.values() for entry in entries]
        if not differences and not attempt.cut:
            differences = [(0, text, False) for text in self._lacking()]
        issued = len(every) + attempt.cut  # what was not noted is not the same
        compared = RedoCompared(same, issued, size, sum(entry.size for entry in every))
        _, difference, sure = min(differences, default=(0, "", False))
        attempt.found = Found(compared, evident, difference, sure)

    def _difference(self, lane: str, number: int, entry: Entry, before: Entry) -> tuple[str, bool] | None:
        """Describe the difference ("": none), and whether it is certain to matter. None: one of the two could not be read."""
        if entry.call != before.call:
            return calls.REDO_ISSUES_ANOTHER(here=entry, there=before, number=number, lane=lane), False
        if not (entry.is_read and before.is_read):
            return None
        if entry.digests == before.digests:
            return "", False
        names = sorted(set(_names(self._rank_state.state, entry.memory)))
        of = f", with {', '.join(names[:3])}{' and more' if len(names) > 3 else ''} in it," if names else ","
        usual = self._usual.get(self._progress.function, {}).get(lane, [])
        sure = number < len(usual) and usual[number].code == entry.code
        return calls.REDO_GIVES_ANOTHER(call=before, number=number, lane=lane, of=of), sure

    def _lacking(self) -> Iterator[str]:
        """List collectives that an earlier attempt, or the lost worker, had issued and this attempt has not."""
        for lane, entries in self._before.items():
            issued = len(self._attempt.entries.get(lane, ()))
            if issued < len(entries):
                yield calls.REDO_ISSUES_LESS(call=entries[issued], number=issued, lane=lane)
        issued_by_code = {code_of(lane): len(entries) for lane, entries in self._attempt.entries.items()}
        for code, marks in (self._of_lost or {}).items():
            if (issued := issued_by_code.get(code, 0)) < len(marks):
                yield calls.LOST_ISSUED_MORE(count=len(marks), issued=issued)


def _difference_from_lost(lane: str, number: int, entry: Entry, lost: Mark) -> tuple[str, bool] | None:
    """As `_difference`, from a mark of the lost worker."""
    if entry.code != lost.call:
        return calls.LOST_ISSUED_ANOTHER(here=entry, number=number, lane=lane), False
    if entry.mark == lost.given:
        return ("", False) if entry.is_read else None
    if not entry.mark or not lost.given:
        return None
    return calls.LOST_GAVE_ANOTHER(call=entry, number=number, lane=lane), lost.usual


def _names(state: State, memory: frozenset[int]) -> Iterator[str]:
    """Return the names of registered tensors and gradients that share this memory."""
    for name, tensor in (*state.parameters(), *state.mutable_tensors(), *state.gradients()):
        if address(local_tensor(tensor)) in memory:
            yield name
