"""What frameworks keep in modules that a script registers: attributes of their own, and parameters that are not always the attributes.

While a sharded module is gathered (in the middle of a step, or for as long as a script likes: `reshard_after_forward=False`,
`unshard()`) its attributes are whole parameters. The optimizer's own are the shards, which exist all the time. They are read where the
framework keeps them, so that nothing has to be resharded first: that would cost one more gathering in a run that keeps its weights.

The state does not know which frameworks do so: its creator passes a `Sharding`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch


class Sharding(Protocol):
    def shards_of(self, module: torch.nn.Module) -> dict[tuple[int, str], torch.Tensor]:
        """Return the shards of the parameters of `module`, by the id of the module and the name in it; empty for most."""

    def reshard(self, module: torch.nn.Module) -> None:
        """Free gathered parameters, as a newcomer has gathered none either."""

    def keeps_attributes(self, part: torch.nn.Module) -> bool:
        """Return whether the attributes of this one module, except for its mode, are a framework's own."""

    def keeps_parameters(self, part: torch.nn.Module) -> bool:
        """Return whether a framework binds the parameters of this one module again, and knows when."""


class Whole:
    """No module is sharded."""

    def shards_of(self, module: torch.nn.Module) -> dict[tuple[int, str], torch.Tensor]:
        return {}

    def reshard(self, module: torch.nn.Module) -> None: ...

    def keeps_attributes(self, part: torch.nn.Module) -> bool:
        return False

    def keeps_parameters(self, part: torch.nn.Module) -> bool:
        return False


def named_parameters(module: torch.nn.Module, shards: dict[tuple[int, str], torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield like the module's own `named_parameters`, with shards in place of gathered parameters."""
    if not shards:
        yield from module.named_parameters()
        return
    seen: set[int] = set()
    for prefix, part in module.named_modules():
        for name, present in part._parameters.items():
            parameter = shards.get((id(part), name), present)
            if parameter is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                yield f"{prefix}.{name}" if prefix else name, parameter
