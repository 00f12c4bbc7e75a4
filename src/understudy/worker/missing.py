"""Memory for what a donor describes and a newcomer does not have yet: moments, which optimizers make in their first step, and gradients.

Memory that the kernel has just given out costs more to touch for the first time than to fill. So a newcomer that nobody waits for yet (a
planned migration, a spare that is prepared for a rank) has it ready: the rank, which is alive, says what there will be, and at the
arrival what fits is used. Only the host's: memory of a device may be short there, and costs nothing to touch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

import torch
from torch.distributed.tensor import DTensor

from understudy.worker.errors import Misuse
from understudy.worker.optimizers import parameters_of
from understudy.worker.state import Description, State, local_tensor


class Missing:
    def __init__(self, state: State) -> None:
        self._state = state
        self._ready: dict[str, tuple[Description, torch.Tensor]] = {}

    def describe(self) -> dict[str, Description]:
        """On the rank: its moments, for `prepare` on another worker."""
        return self._state.descriptions(dict(self._state.moments()))

    def prepare(self, descriptions: Mapping[str, Description], enough: Callable[[], bool]) -> None:
        """Takes memory for these entries and touches it, until `enough`. Sets nothing."""
        for entry, _, _, like in self._moments(descriptions):
            if enough():
                return
            if descriptions[entry][5] == "cpu":
                tensor = _empty(descriptions[entry], like, entry)
                local_tensor(tensor).zero_()
                self._ready[entry] = descriptions[entry], tensor

    def make(self, descriptions: Mapping[str, Description]) -> None:
        """Makes the moments and gradients that are described and not there. Their content is not set."""
        self._fit_buffers(descriptions)
        mine = self._state.all_tensors()
        for entry, optimizer, name, parameter in self._moments(descriptions):
            if entry not in mine:
                self._state.optimizers[optimizer].state[parameter][name] = self._take(descriptions[entry], parameter, entry)
        for name, parameter in self._state.parameters():
            entry = f"{name}/gradient"
            if entry in descriptions and parameter.grad is None:
                parameter.grad = _empty(descriptions[entry], parameter, entry)
            elif entry not in descriptions:
                parameter.grad = None
        self._ready.clear()

    def _fit_buffers(self, descriptions: Mapping[str, Description]) -> None:
        """Buffers that have grown, or that were None at the end of the set-up. The script's own tensors stay, with other memory."""
        for key, module in self._state.modules.items():
            for path, part in module.named_modules():
                for name, buffer in part._buffers.items():
                    description = descriptions.get(f"{key}/buffer/{path}{'.' if path else ''}{name}")
                    if description is None or description[3] or isinstance(buffer, DTensor):
                        continue
                    wanted = getattr(torch, description[0]), list(description[1]), list(description[2])
                    if buffer is None:
                        near = next(module.parameters(), torch.empty(0))
                        part._buffers[name] = _empty(description, near, name)
                    elif (buffer.dtype, list(buffer.shape), list(buffer.stride())) != wanted:
                        buffer.data = _empty(description, buffer, name)

    def _moments(self, descriptions: Mapping[str, Description]) -> Iterator[tuple[str, str, str, torch.Tensor]]:
        """Entry, name of the optimizer, name of the moment, and its parameter."""
        of: defaultdict[str, list[str]] = defaultdict(list)
        for entry in descriptions:
            of[entry.rpartition("/")[0]].append(entry)
        for key, optimizer in self._state.optimizers.items():
            for number, parameter in enumerate(parameters_of(optimizer)):
                for entry in of.get(f"{key}/state/{number}", ()):
                    yield entry, key, entry.rpartition("/")[2], parameter

    def _take(self, description: Description, like: torch.Tensor, entry: str) -> torch.Tensor:
        ready = self._ready.pop(entry, None)
        return ready[1] if ready is not None and ready[0] == description else _empty(description, like, entry)


def _empty(description: Description, like: torch.Tensor, entry: str) -> torch.Tensor:
    """Memory as a donor describes it."""
    kind, shape, stride, distributed, _, where = description
    dtype = getattr(torch, kind)
    device = torch.device("cpu") if where == "cpu" else local_tensor(like).device
    local = torch.empty_strided(shape, stride, dtype=dtype, device=device)
    if not distributed:
        return local
    if not isinstance(like, DTensor):
        raise Misuse(f"{entry} is a DTensor on its donor, but its parameter is not one here")
    return DTensor.from_local(local, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride())
