"""Memory for tensors that a donor describes and a newcomer does not have yet: moments, which optimizers make in their first step, and
gradients.

The first touch of memory that the kernel has just provided costs more than filling it. A newcomer that no rank waits for yet (a planned
migration, a spare that is prepared for a rank) therefore prepares it: the rank, which is alive, describes its tensors, and at the
arrival the memory that fits is used. Only memory of the host: that of a device may be scarce, and its first touch costs nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

import torch

from understudy.worker.encoding.messages import MemoryDescription, TensorDescription
from understudy.worker.state.optimizers import parameters_of
from understudy.worker.state.registry import State
from understudy.worker.state.tensors import empty, fit, local_tensor


class Preallocation:
    def __init__(self, state: State) -> None:
        self._state = state
        self._ready: dict[str, tuple[TensorDescription, torch.Tensor]] = {}

    def describe(self) -> MemoryDescription:
        """Describe, on the rank, its moments, for `prepare` on another worker."""
        return MemoryDescription(self._state.descriptions(dict(self._state.moments())))

    def prepare(self, described: MemoryDescription, enough: Callable[[], bool]) -> None:
        """Allocate memory for these entries and touch it, until `enough`. Sets nothing."""
        for entry, _, _, like in self._moments(described.moments):
            if enough():
                return
            description = described.moments[entry]
            if description.device == "cpu":
                tensor = empty(description, like, entry)
                local_tensor(tensor).zero_()
                self._ready[entry] = description, tensor

    def make(self, descriptions: Mapping[str, TensorDescription]) -> None:
        """Make the moments and gradients that are described and missing, and give all other tensors their shape. Contents are not set."""
        parameters = dict(self._state.parameters())
        for entry, description in descriptions.items():
            if "/buffer/" in entry:
                self._state.fit(entry, description)
            elif entry in parameters:
                fit(parameters[entry], description, entry)
        mine = self._state.all_tensors()
        for entry, optimizer, name, parameter in self._moments(descriptions):
            if entry not in mine:
                self._state.optimizers[optimizer].state[parameter][name] = self._take(descriptions[entry], parameter, entry)
        for name, parameter in self._state.parameters():
            entry = f"{name}/gradient"
            if entry in descriptions and parameter.grad is None:
                parameter.grad = empty(descriptions[entry], parameter, entry)
            elif entry not in descriptions:
                parameter.grad = None
        self._ready.clear()

    def _moments(self, descriptions: Mapping[str, TensorDescription]) -> Iterator[tuple[str, str, str, torch.Tensor]]:
        """Yield entry, name of the optimizer, name of the moment, and its parameter."""
        of: defaultdict[str, list[str]] = defaultdict(list)
        for entry in descriptions:
            of[entry.rpartition("/")[0]].append(entry)
        for key, optimizer in self._state.optimizers.items():
            for number, parameter in enumerate(parameters_of(optimizer)):
                for entry in of.get(f"{key}/state/{number}", ()):
                    yield entry, key, entry.rpartition("/")[2], parameter

    def _take(self, description: TensorDescription, like: torch.Tensor, entry: str) -> torch.Tensor:
        ready = self._ready.pop(entry, None)
        return ready[1] if ready is not None and ready[0] == description else empty(description, like, entry)
