"""Faults that no checksum of a message notices, injected on purpose: state that is wrong although every byte arrived as it was sent.

For tests and drills only. `UNDERSTUDY_SILENT_FAULTS` names the faults, as `KIND:RANK:WHEN` separated by semicolons: RANK is a rank,
WHEN the generation in whose recovery it happens, or for a kind of `IN_TRAINING` the number of committed steps. Without that variable
this module is never imported. Each kind is a plain function that listens at a point of the runtime (`worker.hooks`) where state moves
or is kept, changes one thing there, once, and prints that on stderr.

Those of `ON_NEWCOMERS` happen on the worker that takes over RANK; those of `ON_DONORS` on the survivor that has it; those of `ON_ALL`
on every rank.
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

from understudy.worker import hooks
from understudy.worker.data.loaders import Source
from understudy.worker.encoding.messages import DataPosition, Streams
from understudy.worker.generation.plan import Plan
from understudy.worker.state.tensors import local_tensor
from understudy.worker.step.runtime import Runtime

VARIABLE = "UNDERSTUDY_SILENT_FAULTS"


@dataclass
class SilentFault:
    kind: str
    rank: int
    when: int
    runtime: Runtime
    _done: bool = field(default=False)

    def now(self) -> bool:
        """Return whether this is the moment: once, in the generation that is meant."""
        return self.runtime.membership.control.generation == self.when and self._first()

    def _first(self) -> bool:
        first, self._done = not self._done, True
        if first:
            print(f"understudy: silent fault {self.kind} on rank {self.runtime.progress.rank}", file=sys.stderr, flush=True)
        return first

    def step(self) -> bool:
        """Return whether this is the moment, by committed steps."""
        return self.runtime.progress.step == self.when and not self._done and self._first()

    def tensor(self, part: str, number: int = 0) -> torch.Tensor:
        """Return the local memory of the `number`th tensor whose name contains `part`."""
        names = [name for name in self.runtime.state.all_tensors() if part in name and not name.endswith("/gradient")]
        return local_tensor(self.runtime.state.all_tensors()[names[number]])


def install(runtime: Runtime) -> None:
    """Install the faults that are planned for this worker. Raises `KeyError` for an unknown kind."""
    for text in filter(None, os.environ.get(VARIABLE, "").split(";")):
        kind, rank, when = text.split(":")
        fault = SilentFault(kind, int(rank), int(when), runtime)
        came = runtime.membership.control.assignment is not None and runtime.membership.control.assignment.newcomer
        here = fault.rank == runtime.progress.rank and (came or kind not in ON_NEWCOMERS)
        if here or kind in ON_ALL:
            KINDS[kind](fault)


# -- on a newcomer, between the transfer and the proof -----------------------------------------------------------------------


def parameter_not_loaded(fault: SilentFault) -> None:
    """Drop what arrives for one parameter."""

    def elsewhere(tensors: dict[str, torch.Tensor], **_: Any) -> dict[str, torch.Tensor]:
        if not fault.now():
            return tensors
        entry = next(name for name in tensors if "/parameter/" in name and tensors[name].dim() == 2)
        return {**tensors, entry: torch.empty_like(tensors[entry])}

    hooks.on_filter("take", elsewhere)


def values_permuted(fault: SilentFault) -> None:
    def permute() -> None:
        values = fault.tensor("weight", 1).view(-1)
        values.copy_(values.roll(1))

    _before_proof(fault, permute)


def parameter_in_another(fault: SilentFault) -> None:
    """Give one parameter the values of another of its shape."""

    def mix_up() -> None:
        first = fault.tensor("/parameter/", 0)
        others = (fault.tensor("/parameter/", number) for number in range(1, 100))
        first.copy_(next(other for other in others if other.shape == first.shape))

    _before_proof(fault, mix_up)


def step_counter_reset(fault: SilentFault) -> None:
    """Reset the optimizer's count of steps, on which the correction of its moments depends."""
    _before_proof(fault, lambda: fault.tensor("/step").zero_())


def job_counter_reset(fault: SilentFault) -> None:
    _before_proof(fault, lambda: setattr(fault.runtime.progress, "step", 0))


def cast_in_between(fault: SilentFault) -> None:
    """Cast through a type of fewer bits and back."""

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
    def without(streams: Streams) -> Streams:
        if not fault.now():
            return streams
        torch.rand(1)  # the stream is set to its earlier state, which lacks this draw
        return {name: data for name, data in streams.items() if name != "torch"}

    hooks.on_filter("streams", without)


def data_position_not_restored(fault: SilentFault) -> None:
    def stay(position: DataPosition, source: Source) -> DataPosition:
        return source.position() if fault.now() else position

    hooks.on_filter("position", stay)


# -- on a donor --------------------------------------------------------------------------------------------------------------


def stale_moment(fault: SilentFault) -> None:
    """Send a moment as it was one step before."""
    kept: dict[str, torch.Tensor] = {}

    def keep(optimizer: Optimizer, *_: Any) -> None:
        kept.update({name: local_tensor(t).clone() for name, t in fault.runtime.state.moments() if name.endswith("exp_avg")})

    register_optimizer_step_pre_hook(keep)

    def older(tensors: dict[str, torch.Tensor], plans: dict[int, Plan], member: int) -> dict[str, torch.Tensor]:
        mine = [message for plan in plans.values() for message in plan.messages if message.donor == member]
        sent = [piece.entry for message in mine for piece in message.pieces if piece.entry in kept]
        return {**tensors, sent[0]: kept[sent[0]]} if sent and fault.now() else tensors

    hooks.on_filter("give", older)


def flipped_bit_in_donor(fault: SilentFault) -> None:
    """Flip a bit in the donor's memory, before it describes its state."""

    def flip() -> None:
        if fault.now():
            _flip(fault.tensor("/parameter/"))

    hooks.on("donate", flip)


# -- on all ----------------------------------------------------------------------------------------------------------------------


def reduction_order(fault: SilentFault) -> None:
    """Connect the groups in the opposite order of their members."""

    def turned(members: list[tuple[Any, str, list[int]]]) -> list[tuple[Any, str, list[int]]]:
        return [(group, name, ranks[::-1]) for group, name, ranks in members] if fault.now() else members

    hooks.on_filter("members", turned)


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
    tensor.view(-1).view(torch.uint8)[5] ^= 16  # in the second number, at a bit that is neither the smallest nor the sign


def _before_proof(fault: SilentFault, change: Callable[[], object]) -> None:
    def changed() -> None:
        if fault.now():
            with torch.no_grad():
                change()

    hooks.on("prove", changed)


def _after_step(fault: SilentFault, change: Callable[[], None]) -> None:
    def changed(**_: Any) -> None:
        if fault.step():
            with torch.no_grad():
                change()

    hooks.on("committed", changed)
