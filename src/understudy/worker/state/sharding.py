"""The memory in which FSDP2 keeps a rank's part of a parameter, whatever stands in the module at the moment.

While a sharded module is gathered (in the middle of a step, or for as long as a script likes: `reshard_after_forward=False`, `unshard()`)
its attributes are whole parameters. The optimizer's own are the shards, and these exist all the time. They are looked up here, so that
nothing has to be resharded to be read: that would be a gathering more in a run that keeps its weights.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from understudy.worker.frameworks.fsdp2 import groups_of, is_sharded


def shards_of(module: torch.nn.Module) -> dict[tuple[int, str], torch.Tensor]:
    """By module (its id) and name in it: the shard of each parameter in `module`; empty without FSDP2."""
    found: dict[tuple[int, str], torch.Tensor] = {}
    for part in filter(is_sharded, module.modules()):
        for group in groups_of(part):
            for parameter in group.fsdp_params:
                info = parameter._module_info
                names = [(info.module, info.param_name), *zip(info.shared_modules, info.shared_param_names, strict=True)]
                found |= {(id(owner), name): parameter.sharded_param for owner, name in names}
    return found


def named_parameters(module: torch.nn.Module, shards: dict[tuple[int, str], torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    """As the module's own `named_parameters`, with shards in place of what is gathered."""
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


def reshard(module: torch.nn.Module) -> None:
    """Lets go of what is gathered, as a newcomer has gathered nothing either."""
    for part in filter(is_sharded, module.modules()):
        part.reshard()  # type: ignore[operator]
