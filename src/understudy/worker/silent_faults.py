"""Faults that no checksum of a message sees, done on purpose: state that is wrong although every byte arrived as it was sent.

For tests and drills only. `UNDERSTUDY_SILENT_FAULTS` names what is to happen, as `KIND:RANK:WHEN` separated by semicolons: RANK is a rank,
WHEN the generation in whose recovery it happens, or for a kind of `IN_TRAINING` the number of committed steps. Without that variable
nothing of this is ever imported. Each kind is a plain function that wraps what of the runtime moves or keeps the state, changes one
thing there, once, and says so on stderr.

Those of `ON_NEWCOMERS` happen on the worker that comes to RANK; those of `ON_DONORS` on the survivor that holds it; those of `ON_ALL` on
every rank.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from understudy.worker import newcomer, recovery, runtime
from understudy.worker.loaders import LoaderSource
from understudy.worker.randomness import Randomness
from understudy.worker.runtime import Runtime
from understudy.worker.tensors import local_tensor
from understudy.worker.transport.groups import Groups

VARIABLE = "UNDERSTUDY_SILENT_FAULTS"

Function = Callable[..., Any]


@dataclass
class SilentFault:
    kind: str
    rank: int
    when: int
    runtime: Runtime
    _done: bool = field(default=False)

    def now(self) -> bool:
        """Whether this is the moment: once, in the generation that is meant."""
        return self.runtime.control.generation == self.when and self._first()

    def _first(self) -> bool:
        first, self._done = not self._done, True
        if first:
            print(f"understudy: silent fault {self.kind} on rank {self.runtime.rank}", file=sys.stderr, flush=True)
        return first

    def step(self) -> bool:
        """The same by committed steps."""
        return self.runtime.step == self.when and not self._done and self._first()

    def tensor(self, part: str, number: int = 0) -> torch.Tensor:
        """The local memory of the `number`th tensor in whose name `part` is."""
        names = [name for name in self.runtime.state.all_tensors() if part in name and not name.endswith("/gradient")]
        return local_tensor(self.runtime.state.all_tensors()[names[number]])


def install(runtime: Runtime) -> None:
    """What is planned for this worker. Raises `KeyError` for an unknown kind."""
    for text in filter(None, os.environ.get(VARIABLE, "").split(";")):
        kind, rank, when = text.split(":")
        fault = SilentFault(kind, int(rank), int(when), runtime)
        came = runtime.control.assignment is not None and runtime.control.assignment.newcomer
        here = fault.rank == runtime.rank and (came or kind not in ON_NEWCOMERS)
        if here or kind in ON_ALL:
            KINDS[kind](fault)


# -- on a newcomer, between the transfer and the proof -----------------------------------------------------------------------


def parameter_not_loaded(fault: SilentFault) -> None:
    """What arrives for one parameter goes nowhere."""

    def around(receive: Function) -> Function:
        def receiving(peers: Any, tensors: dict[str, torch.Tensor], plan: Any) -> None:
            if fault.now():
                entry = next(name for name in tensors if "/parameter/" in name and tensors[name].dim() == 2)
                tensors = {**tensors, entry: torch.empty_like(tensors[entry])}
            receive(peers, tensors, plan)

        return receiving

    _wrap(newcomer, "receive", around)


def values_permuted(fault: SilentFault) -> None:
    def permute() -> None:
        values = fault.tensor("weight", 1).view(-1)
        values.copy_(values.roll(1))

    _before_proof(fault, permute)


def parameter_in_another(fault: SilentFault) -> None:
    """One parameter holds the values of another of its shape."""

    def mix_up() -> None:
        first = fault.tensor("/parameter/", 0)
        others = (fault.tensor("/parameter/", number) for number in range(1, 100))
        first.copy_(next(other for other in others if other.shape == first.shape))

    _before_proof(fault, mix_up)


def step_counter_reset(fault: SilentFault) -> None:
    """The optimizer's count of steps, on which the correction of its moments depends."""
    _before_proof(fault, lambda: fault.tensor("/step").zero_())


def job_counter_reset(fault: SilentFault) -> None:
    _before_proof(fault, lambda: setattr(fault.runtime, "step", 0))


def cast_in_between(fault: SilentFault) -> None:
    """Through a type of fewer bits and back."""

    def cast() -> None:
        values = fault.tensor("exp_avg_sq")
        values.copy_(values.to(torch.bfloat16).to(values.dtype))

    _before_proof(fault, cast)


def buffer_dropped(fault: SilentFault) -> None:
    def drop() -> None:
        parts = [part for module in fault.runtime.state.modules.values() for part in module.modules()]
        buffers = next(part._buffers for part in parts if part._buffers)
        buffers[next(iter(buffers))] = None

    _before_proof(fault, drop)


def random_stream_not_restored(fault: SilentFault) -> None:
    setting = False

    def around_setting(restore_streams: Function) -> Function:
        def restoring(*arguments: Any) -> None:
            nonlocal setting
            setting = True
            restore_streams(*arguments)
            setting = False

        return restoring

    def around_restore(restore: Function) -> Function:
        def restoring(randomness: Randomness, streams: dict[str, bytes]) -> None:
            if setting and fault.now():
                torch.rand(1)  # the stream stands where it stood, and that is not there
                streams = {name: data for name, data in streams.items() if name != "torch"}
            restore(randomness, streams)

        return restoring

    _wrap(newcomer, "restore_streams", around_setting)
    _wrap(Randomness, "restore", around_restore)


def data_position_not_restored(fault: SilentFault) -> None:
    def around(go_to: Function) -> Function:
        def going(source: LoaderSource, position: dict[str, Any]) -> None:
            if not fault.now():
                go_to(source, position)

        return going

    _wrap(LoaderSource, "go_to", around)


# -- on a donor --------------------------------------------------------------------------------------------------------------


def stale_moment(fault: SilentFault) -> None:
    """A donor sends a moment as it was one step before."""
    kept: dict[str, torch.Tensor] = {}

    def keep(optimizer: Optimizer, *_: Any) -> None:
        kept.update({name: local_tensor(t).clone() for name, t in fault.runtime.state.moments() if name.endswith("exp_avg")})

    register_optimizer_step_pre_hook(keep)

    def around(send: Function) -> Function:
        def sending(peers: Any, tensors: dict[str, torch.Tensor], plans: Any, member: int) -> None:
            mine = [message for plan in plans.values() for message in plan.messages if message.donor == member]
            sent = [piece.entry for message in mine for piece in message.pieces if piece.entry in kept]
            if sent and fault.now():
                tensors = {**tensors, sent[0]: kept[sent[0]]}
            send(peers, tensors, plans, member)

        return sending

    _wrap(recovery, "send", around)


def flipped_bit_in_donor(fault: SilentFault) -> None:
    """In its memory, before it says what it holds."""

    def around(donate: Function) -> Function:
        def donating(here: Runtime) -> None:
            if fault.now():
                _flip(fault.tensor("/parameter/"))
            donate(here)

        return donating

    _wrap(runtime, "donate", around)


# -- on all ----------------------------------------------------------------------------------------------------------------------


def reduction_order(fault: SilentFault) -> None:
    """The groups are connected in the opposite order of their members."""

    def around(connect: Function) -> Function:
        def connecting(groups: Groups, *arguments: Any) -> Any:
            if not fault.now():
                return connect(groups, *arguments)
            members = groups.members
            groups.members = lambda: [(group, name, ranks[::-1]) for group, name, ranks in members()]  # type: ignore[method-assign]
            try:
                return connect(groups, *arguments)
            finally:
                del groups.members

        return connecting

    _wrap(Groups, "connect", around)


# -- in training -------------------------------------------------------------------------------------------------------------


def flipped_bit_in_parameter(fault: SilentFault) -> None:
    _after_step(fault, lambda: _flip(fault.tensor("/parameter/")))


def flipped_bit_in_moment(fault: SilentFault) -> None:
    _after_step(fault, lambda: _flip(fault.tensor("exp_avg")))


ON_NEWCOMERS: dict[str, Callable[[SilentFault], None]] = {
    kind.__name__: kind
    for kind in (
        parameter_not_loaded,
        values_permuted,
        parameter_in_another,
        step_counter_reset,
        job_counter_reset,
        cast_in_between,
        buffer_dropped,
        random_stream_not_restored,
        data_position_not_restored,
    )
}
ON_DONORS: dict[str, Callable[[SilentFault], None]] = {kind.__name__: kind for kind in (stale_moment, flipped_bit_in_donor)}
ON_ALL: dict[str, Callable[[SilentFault], None]] = {"reduction_order": reduction_order}
IN_TRAINING: dict[str, Callable[[SilentFault], None]] = {kind.__name__: kind for kind in (flipped_bit_in_parameter, flipped_bit_in_moment)}
KINDS = ON_NEWCOMERS | ON_DONORS | ON_ALL | IN_TRAINING


def _flip(tensor: torch.Tensor) -> None:
    tensor.view(-1).view(torch.uint8)[5] ^= 16  # of the second number, where it is neither its smallest nor its sign


def _before_proof(fault: SilentFault, change: Callable[[], object]) -> None:
    def around(verify: Function) -> Function:
        def verifying(*arguments: Any) -> None:
            if fault.now():
                with torch.no_grad():
                    change()
            verify(*arguments)

        return verifying

    _wrap(newcomer.Newcomer, "_verify", around)


def _after_step(fault: SilentFault, change: Callable[[], None]) -> None:
    def around(commit: Function) -> Function:
        def committing(*arguments: Any) -> None:
            commit(*arguments)
            if fault.step():
                with torch.no_grad():
                    change()

        return committing

    _wrap(Runtime, "_commit", around)


def _wrap(owner: object, name: str, around: Callable[[Function], Function]) -> None:
    setattr(owner, name, around(getattr(owner, name)))
