"""What a rank puts into its collectives: noted in every attempt at a transaction, and compared in a redo.

A survivor nearly always waits in a collective when a rank is lost. What it had put into that one, and into those before it, is known, and
the redo must put the same into the same collectives, as far as the interrupted attempt had come. So every attempt notes one entry for each
collective that it issues up to its vote: what is called, and a digest of what the operator reads on this rank, taken before it runs.
Entries are compared lane by lane (`collectives.calls`), as they are issued. A difference stops no rank: it goes with the vote (`redo`).

Of several attempts the first that came to an entry is what all later ones are compared with.

A difference is *sure* where the same call is issued in every step, and the redo gives it other numbers. Others may be of no consequence:
what is issued now and then carries times or counts for a person, and a script that catches the error of a broken collective goes another
way.

Not noted is what says nothing of the step: what is issued once the generation is over or a collective has failed, because what broken
collectives gave may be anything; and what threads issue that the script has started, because they keep no step with it. Where a framework
issues others in a redo, as DDP's static graph does, nothing is compared.

Known limits: of tensors that are not on the host, and of sparse ones, only types and shapes are compared. Of what is larger than `WHOLE`
bytes every `STRIDE`th element is, so a difference in a few elements may be missed. That a wait in C++ has failed is not seen before the
generation is over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import xxhash
from torch.distributed import Work

from understudy.messages import calls
from understudy.worker.collectives.calls import arguments_of, given_to, lane_of, moved_objects, shown
from understudy.worker.collectives.interception import Collective, Kernels
from understudy.worker.encoding.digests import digest, flat_bytes
from understudy.worker.generation.context import RankContext
from understudy.worker.participant import Participant, Step
from understudy.worker.state.registry import State
from understudy.worker.state.tensors import local_tensor

WHOLE = 1 << 20  # bytes of one tensor that are read in full; 40 MB take 2.8 ms, and a sample of them 0.5 ms
# Between two elements of a sample. A prime: with 64, gradients of layers whose features lie at multiples of it had the same digest.
STRIDE = 509
_OF_OBJECTS = (torch.uint8, torch.int64)  # as which torch sends objects, and their sizes


class Entry(NamedTuple):
    """One collective."""

    operator: str
    arguments: tuple[tuple[str, Any], ...]  # but tensors
    given: list[tuple[torch.dtype, torch.Size]]  # of each tensor that is read
    digests: list[int]  # of them; none where they cannot be read
    size: int  # bytes of them

    @property
    def call(self) -> tuple[str, str, list[tuple[torch.dtype, torch.Size]]]:
        """But the numbers."""
        return self.operator, shown(self.arguments), self.given

    @property
    def is_read(self) -> bool:
        return bool(self.digests) or not self.given

    def __str__(self) -> str:
        tensors = ", ".join(f"{str(kind).removeprefix('torch.')} {tuple(shape)}" for kind, shape in self.given[:3]) or "nothing"
        return f"{self.operator.strip('_')} ({shown(self.arguments) or 'no settings'}) of {tensors}"


class RedoCompared(NamedTuple):
    """How much of a redo was the same as before."""

    collectives: int
    of: int  # that the redo has issued
    size: int  # bytes that were put into them
    size_of: int


Lanes = dict[str, list[Entry]]


@dataclass
class _Attempt:
    """The running one."""

    entries: Lanes = field(default_factory=dict)
    cut: bool = False  # not all of it is noted
    same: int = 0  # entries that are as before
    same_size: int = 0  # bytes of them
    difference: str = ""  # the first one
    sure: bool = False  # and it cannot be of no consequence


class IssuedCollectives(Kernels, Participant):
    def __init__(self, context: RankContext) -> None:
        self._membership, self._progress, self._rank_state = context.membership, context.progress, context.rank_state
        self._lock = threading.Lock()  # autograd has threads of its own
        self._thread = 0  # the one that runs transactions
        self._noting = False
        self._attempt = _Attempt()
        self._before: Lanes = {}  # of attempts that were interrupted
        self._usual: dict[str, Lanes] = {}  # by function: of its last step that was committed

    @property
    def difference(self) -> str:
        """In what goes into the collectives of the running attempt, the first one."""
        return self._attempt.difference

    @property
    def sure(self) -> bool:
        """Whether that cannot be of no consequence."""
        return self._attempt.sure

    # -- a transaction -----------------------------------------------------------------------------------------------------

    def begin(self, step: Step) -> None:
        self._before = {}  # those of a transaction whose error the script has caught

    def attempt(self, step: Step) -> None:
        if step.alone:
            return
        if not self.installed:
            self.install()
        self._thread = threading.get_ident()
        self._attempt, self._noting = _Attempt(), True

    def before_vote(self, step: Step) -> None:
        self._noting, attempt = False, self._attempt
        for lane, entries in self._before.items() if not attempt.cut else ():
            issued = len(attempt.entries.get(lane, ()))
            if issued < len(entries) and not attempt.difference:
                attempt.difference = calls.REDO_ISSUES_LESS(call=entries[issued], number=issued, lane=lane)

    def failed(self, step: Step, error: Exception) -> None:
        self._noting = False

    def rollback(self, step: Step) -> None:
        with self._lock:
            for lane, entries in self._attempt.entries.items():
                known = self._before.setdefault(lane, [])
                known += entries[len(known) :]

    def again(self, step: Step) -> None:
        if self._rank_state.frameworks.not_drilled():
            self._before = {}

    def committed(self, step: Step) -> None:
        self._before = {}
        if step.kind == "step":
            self._usual[step.function] = self._attempt.entries

    def compared(self) -> RedoCompared:
        """Of the redo that has come to its vote; nothing where there was none."""
        if not self._before:
            return RedoCompared(0, 0, 0, 0)
        every = [entry for entries in self._attempt.entries.values() for entry in entries]
        return RedoCompared(self._attempt.same, len(every), self._attempt.same_size, sum(entry.size for entry in every))

    # -- its collectives ---------------------------------------------------------------------------------------------------

    def call(self, collective: Collective, operate: Callable[[], Any]) -> Any:
        if not self._noting or not self._is_of_step() or self._membership.aborted():
            return operate()
        try:
            lane, entry = lane_of(collective), self._entry(collective)
        except Exception:  # a kind of tensor, or of object, that cannot be read: the script's collective is not touched by that
            self._attempt.cut, self._noting = True, False
            return operate()
        with self._lock:
            entries = self._attempt.entries.setdefault(lane, [])
            number = len(entries)
            entries.append(entry)
        self._compare(lane, number, entry, collective)
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

    def _entry(self, collective: Collective) -> Entry:
        given, arguments = given_to(collective), arguments_of(collective)
        if given and given[0].dtype in _OF_OBJECTS and (objects := moved_objects()) is not None:
            return Entry(collective.operator, arguments, [], [objects], 0)  # equal objects may have different pickles
        offset = self._progress.transaction % STRIDE
        digests = [sampled(tensor, offset) for tensor in given]
        known = [one for one in digests if one is not None]
        read = known if len(known) == len(given) else []
        return Entry(
            collective.operator, arguments, [(tensor.dtype, tensor.shape) for tensor in given], read, sum(tensor.nbytes for tensor in given)
        )

    def _compare(self, lane: str, number: int, entry: Entry, collective: Collective) -> None:
        known = self._before.get(lane)
        if known is None or number >= len(known):
            return
        before, attempt = known[number], self._attempt
        if (alike := entry.call == before.call) and entry.digests == before.digests:
            attempt.same, attempt.same_size = attempt.same + entry.is_read, attempt.same_size + entry.size * entry.is_read
        elif not attempt.difference:
            usual = self._usual.get(self._progress.function, {}).get(lane, [])
            attempt.sure = alike and number < len(usual) and usual[number].call == entry.call
            if not alike:
                attempt.difference = calls.REDO_ISSUES_ANOTHER(here=entry, there=before, number=number, lane=lane)
            else:
                names = sorted(set(_names(self._rank_state.state, given_to(collective))))
                of = f", with {', '.join(names[:3])}{' and more' if len(names) > 3 else ''} in it," if names else ","
                attempt.difference = calls.REDO_GIVES_ANOTHER(call=before, number=number, lane=lane, of=of)


def sampled(tensor: torch.Tensor, offset: int) -> int | None:
    """The digest of a tensor on the host, or of a sample of its elements from `offset` on; None of what cannot be read."""
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        return None
    plain = tensor.detach() if tensor.is_contiguous() else tensor.detach().contiguous()
    if plain.nbytes <= WHOLE:
        return digest(plain)
    flat = flat_bytes(plain).numpy().view(f"V{plain.element_size()}")  # numpy does not know all types, and its slices take less time
    return xxhash.xxh3_64_intdigest(flat[offset::STRIDE].tobytes())


def _names(state: State, given: list[torch.Tensor]) -> Iterator[str]:
    """Of registered tensors and gradients that share memory with what was given."""
    memory = {tensor.untyped_storage().data_ptr() for tensor in given}
    for name, tensor in (*state.parameters(), *state.mutable_tensors(), *state.gradients()):
        if local_tensor(tensor).untyped_storage().data_ptr() in memory:
            yield name
