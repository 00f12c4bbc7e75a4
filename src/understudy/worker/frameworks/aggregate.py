"""All frameworks together, in the order of the registry. Nothing here knows one of them by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from understudy.messages import frameworks
from understudy.worker.frameworks.base import Described, FrameworkAdapter, Memberships, Registered
from understudy.worker.frameworks.registry import adapters


class Frameworks(FrameworkAdapter):
    """The framework state of this rank. Each method is that of `FrameworkAdapter`, for all of them."""

    def __init__(self, registered: Registered, groups: Memberships) -> None:
        super().__init__(registered, groups)
        self._adapters = [kind(registered, groups) for kind in adapters()]
        self.passing = frozenset[str]().union(*(adapter.passing for adapter in self._adapters))

    def watch(self, training: Callable[[], bool]) -> None:
        for adapter in self._adapters:
            adapter.watch(training)

    def uncovered(self) -> str:
        """Return the first finding of an adapter."""
        return next((text for adapter in self._adapters if (text := adapter.uncovered())), "")

    def replaces_parameters(self) -> bool:
        return any(adapter.replaces_parameters() for adapter in self._adapters)

    def settle(self) -> None:
        for adapter in self._adapters:
            adapter.settle()

    def begin(self) -> None:
        for adapter in self._adapters:
            adapter.begin()

    def reset(self) -> None:
        for adapter in self._adapters:
            adapter.reset()

    def restore(self) -> None:
        for adapter in self._adapters:
            adapter.restore()

    def meet_newcomers(self) -> None:
        for adapter in self._adapters:
            adapter.meet_newcomers()

    def not_drilled(self) -> str:
        return next(filter(None, (adapter.not_drilled() for adapter in self._adapters)), "")

    def redoes_otherwise(self) -> bool:
        return any(adapter.redoes_otherwise() for adapter in self._adapters)

    def described(self) -> Described:
        """Return the objects of all adapters. Raises `ValueError` if two adapters use the same name."""
        found: Described = {}
        for adapter in self._adapters:
            described = adapter.described()
            if twice := found.keys() & described.keys():
                raise ValueError(frameworks.TWO_ADAPTERS(adapter=type(adapter).__qualname__, name=min(twice)))
            found |= described
        return found

    def adopt(self, reports: Mapping[int, Described]) -> None:
        for adapter in self._adapters:
            adapter.adopt(reports)


class Shards:
    """What frameworks know of a module's parameters; a `Sharding` for the registered state."""

    def __init__(self) -> None:
        self._kinds = adapters()

    def shards_of(self, module: torch.nn.Module) -> dict[tuple[int, str], torch.Tensor]:
        found: dict[tuple[int, str], torch.Tensor] = {}
        for kind in self._kinds:
            found |= kind.shards_of(module)
        return found

    def reshard(self, module: torch.nn.Module) -> None:
        for kind in self._kinds:
            kind.reshard(module)

    def keeps_attributes(self, part: torch.nn.Module) -> bool:
        return any(kind.keeps_attributes(part) for kind in self._kinds)

    def keeps_parameters(self, part: torch.nn.Module) -> bool:
        return any(kind.keeps_parameters(part) for kind in self._kinds)
