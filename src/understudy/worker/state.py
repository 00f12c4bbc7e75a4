"""The registered state of a rank: what is copied at `begin`, set back before a redo, compared, and moved to a newcomer.

Three kinds of content:

- *tensors*: parameters, buffers, registered tensors, optimizer moments. Moved in place, memory to memory. Of a DTensor it is
  the local shard. The optimizer's moments need not exist on a newcomer: they are made from the donor's description.
- *values*: everything small that has `state_dict`/`load_state_dict` (schedulers, GradScaler, own objects), and an optimizer's
  hyper-parameters. Handled as encoded bytes.
- *streams*: random number generators.

At `begin` a copy is taken of what an attempt may change before its vote: buffers, registered tensors, values, streams, and
gradients that are already there (accumulation over several transactions). Parameters and moments change only after the
vote, so no second copy of them exists.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from torch.amp.grad_scaler import GradScaler
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from understudy.worker.codec import Unencodable, decode, encode
from understudy.worker.digests import digest, digest_bytes, flat_bytes
from understudy.worker.errors import Misuse
from understudy.worker.optimizers import all_tensors, common_values, ends_of, loose_values, parameters_of
from understudy.worker.randomness import Randomness, Streams

# Data type, local shape, strides, whether it is a DTensor, the parameter that it belongs to ("" for none), device type.
Description = list[Any]


@dataclass
class Snapshot:
    """What an attempt may change, as of its begin."""

    streams: Streams
    values: dict[str, bytes]
    tensors: dict[str, torch.Tensor]
    gradients: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)  # id of the parameter -> its gradient, content
    scalers: dict[str, dict[Any, Any]] = field(default_factory=dict)


def local_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """The memory that this rank holds of `tensor`."""
    local: torch.Tensor = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
    return local.detach()


def _version(tensor: torch.Tensor) -> int:
    """How often the memory of `tensor` was changed in place."""
    return int((tensor._local_tensor if isinstance(tensor, DTensor) else tensor)._version)


def describe(tensor: torch.Tensor, owner: str) -> Description:
    local = local_tensor(tensor)
    kind = str(local.dtype).removeprefix("torch.")
    return [kind, list(local.shape), list(local.stride()), isinstance(tensor, DTensor), owner, local.device.type]


def size_of(description: Description) -> int:
    """Bytes of the tensor that is described."""
    return math.prod(description[1]) * int(getattr(torch, description[0]).itemsize)


_CONTAINERS = (dict, list, tuple)  # in which something may have to be put in order


def canonical(value: Any) -> Any:
    """The same value with every dict in one order, so that equal states have equal encodings."""
    kind = type(value)
    if kind is dict:
        kinds = set(map(type, value))
        keys = sorted(value) if kinds == {str} or kinds == {int} else sorted(value, key=lambda key: (type(key).__name__, str(key)))
        return {key: canonical(item) if type(item := value[key]) in _CONTAINERS else item for key in keys}
    if kind is list or kind is tuple:
        return kind([canonical(item) if type(item) in _CONTAINERS else item for item in value])
    return value


def _shard(tensor: torch.Tensor) -> str:
    """Which shard of a DTensor this is: shards are never replicas of each other, even when their content is equal by chance."""
    if not isinstance(tensor, DTensor):
        return ""
    coordinate: list[int] = list(tensor.device_mesh.get_coordinate() or [])
    return ",".join(str(c) for c, placement in zip(coordinate, tensor.placements, strict=False) if placement.is_shard())


class State:
    """Everything that the script has registered, by name."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.modules: dict[str, torch.nn.Module] = {}
        self.optimizers: dict[str, Optimizer] = {}
        self.values: dict[str, Any] = {}
        self.tensors: dict[str, torch.Tensor] = {}
        self.loaders: dict[str, Any] = {}
        self.randomness = Randomness()
        self._copies: dict[str, torch.Tensor] = {}
        self._buffers: list[tuple[str, torch.nn.Module]] | None = None  # modules that have buffers, with the names' prefixes
        self._beside: set[str] = set()  # optimizers that keep something beside tensors
        self.gradients_matter = True  # whether gradients that exist between two transactions are part of the state
        self.gradients_kept = 0  # how often a step was seen that did not drop the gradients it found
        self.gradients_dropped = 0  # how often one that did
        self._found: list[tuple[weakref.ref[torch.Tensor], int]] = []  # gradients at begin, and how often they had been changed

    def register(self, name: str, thing: Any) -> None:
        """Raises `Misuse` for a thing whose state cannot be read and set."""
        if isinstance(thing, torch.nn.Module):
            self.modules[name] = thing
        elif isinstance(thing, Optimizer):
            self.optimizers[name] = thing
        elif isinstance(thing, torch.Tensor):
            self.tensors[name] = thing
        elif isinstance(thing, torch.Generator):
            self.randomness.generators[name] = thing
        elif isinstance(thing, numpy.random.Generator):
            self.randomness.numpy_generators[name] = thing
        elif isinstance(thing, DataLoader) or type(thing).__name__ == "StatefulDataLoader":
            self.loaders[name] = thing
        elif callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None)):
            self.values[name] = thing
            self._encode_value(name, thing)
        elif isinstance(thing, dict):
            for key, item in thing.items():
                self.register(f"{name}.{key}", item)
        elif isinstance(thing, list | tuple):
            for number, item in enumerate(thing):
                self.register(f"{name}.{number}", item)
        else:
            raise Misuse(
                f"job.register({name}=...): a {type(thing).__qualname__} has no state_dict and load_state_dict; register modules, "
                "optimizers, loaders, tensors, generators or objects with these two methods"
            )

    # -- tensors ---------------------------------------------------------------------------------------------------------

    def parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        for key, module in self.modules.items():
            for name, parameter in module.named_parameters():
                yield f"{key}/parameter/{name}", parameter

    def mutable_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Those that may change before a vote: buffers and registered tensors."""
        if self._buffers is None:
            self._buffers = [
                (f"{key}/buffer/{prefix}{'.' if prefix else ''}", part)
                for key, module in self.modules.items()
                for prefix, part in module.named_modules()
                if part._buffers
            ]
        seen: set[int] = set()
        for prefix, part in self._buffers:
            for name, buffer in part._buffers.items():
                if buffer is not None and id(buffer) not in seen:
                    seen.add(id(buffer))
                    yield prefix + name, buffer
        for name, tensor in self.tensors.items():
            yield f"{name}/tensor", tensor

    def moments(self) -> Iterator[tuple[str, torch.Tensor]]:
        for key, optimizer in self.optimizers.items():
            for number, parameter in enumerate(parameters_of(optimizer)):
                for name, value in optimizer.state.get(parameter, {}).items():
                    if isinstance(value, torch.Tensor):
                        yield f"{key}/state/{number}/{name}", value

    def gradients(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, parameter in self.parameters():
            if parameter.grad is not None:
                yield f"{name}/gradient", parameter.grad

    def all_tensors(self) -> dict[str, torch.Tensor]:
        """Every tensor that makes up this rank's state between two transactions. Sharded modules are resharded first."""
        self._buffers = None
        for module in self.modules.values():
            for part in module.modules():
                reshard = getattr(part, "reshard", None)
                if callable(reshard) and hasattr(part, "_get_fsdp_state"):
                    reshard()
        found = dict(self.parameters())
        found |= dict(self.mutable_tensors())
        found |= dict(self.moments())
        if self.gradients_matter:
            found |= dict(self.gradients())
        for name, tensor in found.items():
            try:
                flat_bytes(local_tensor(tensor))
            except ValueError as error:
                raise Misuse(f"{name} cannot be moved: {error}; make it contiguous") from error
        return found

    def owners(self) -> dict[str, str]:
        """The parameter to which each moment belongs."""
        names = {id(parameter): name for name, parameter in self.parameters()}
        return {
            f"{key}/state/{number}/{name}": names.get(id(parameter), "")
            for key, optimizer in self.optimizers.items()
            for number, parameter in enumerate(parameters_of(optimizer))
            for name in optimizer.state.get(parameter, {})
        }

    def descriptions(self, tensors: dict[str, torch.Tensor]) -> dict[str, Description]:
        names = {id(parameter): name for name, parameter in self.parameters()}
        owners = {
            f"{key}/state/{number}": names.get(id(parameter), "")
            for key, optimizer in self.optimizers.items()
            for number, parameter in enumerate(parameters_of(optimizer))
        }
        found = {}
        for entry, tensor in tensors.items():
            prefix, _, last = entry.rpartition("/")
            found[entry] = describe(tensor, prefix if last == "gradient" else owners.get(prefix, ""))
        return found

    def storages(self) -> set[int]:
        return {local_tensor(tensor).untyped_storage().data_ptr() for tensor in self.all_tensors().values()}

    # -- values ----------------------------------------------------------------------------------------------------------

    def encoded_values(self, only: Container[str] | None = None, closely: bool = True) -> dict[str, bytes]:
        """By entry; all of them, or `only` some.

        What optimizers keep beside tensors is looked for at all parameters if `closely`, else at two of each group until some was found.
        """
        found = {}
        for name, thing in self.values.items():
            if only is None or f"{name}/value" in only:
                found[f"{name}/value"] = self._encode_value(name, thing)
        for key, optimizer in self.optimizers.items():
            if only is not None and f"{key}/settings" not in only:
                continue
            groups = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
            beside: list[Any] = [{}]
            if closely or key in self._beside or not all_tensors(optimizer):
                loose, rest = loose_values(optimizer), common_values(optimizer)
                if loose or rest:
                    self._beside.add(key)
                beside = [canonical(loose), *([canonical(rest)] if rest else [])]
            try:
                found[f"{key}/settings"] = encode([groups, *beside])
            except Unencodable as error:
                raise Misuse(f"the settings of optimizer {key} hold {error}, which cannot be moved to another worker") from error
        return found

    @staticmethod
    def _encode_value(name: str, thing: Any) -> bytes:
        try:
            return encode(canonical(thing.state_dict()))
        except Unencodable as error:
            raise Misuse(
                f"job.register({name}=...): its state_dict holds {error}, which cannot be moved to another worker; "
                "keep numbers, strings, tensors, arrays and containers of them there"
            ) from error

    def load_value(self, entry: str, data: bytes, beside: bool = True) -> None:
        """Sets a value as it was encoded; of an optimizer what it keeps `beside` tensors, too."""
        name, kind = entry.rsplit("/", 1)
        if kind == "settings":
            optimizer = self.optimizers[name]
            groups, loose, *rest = decode(data)
            for mine, theirs in zip(optimizer.param_groups, groups, strict=True):
                mine.update(theirs)
            if not beside:
                return
            for others in rest:
                optimizer.state.update(others)
            for number, parameter in enumerate(parameters_of(optimizer)):
                optimizer.state[parameter].update(loose.get(number, {})) if number in loose else None
        else:
            self.values[name].load_state_dict(decode(data))

    # -- begin and redo --------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        tensors = dict(self.mutable_tensors())
        sources = [local_tensor(tensor) for tensor in tensors.values()]
        targets = []
        for name, source in zip(tensors, sources, strict=True):
            copy = self._copies.get(name)
            if copy is None or copy.shape != source.shape or copy.dtype != source.dtype or copy.device != source.device:
                copy = self._copies[name] = torch.empty_like(source)
            targets.append(copy)
        if targets:
            torch._foreach_copy_(targets, sources)
        gradients = {}
        if self.gradients_matter:
            gradients = {id(p): (p.grad, local_tensor(p.grad).clone()) for _, p in self.parameters() if p.grad is not None}
        self._found = [(weakref.ref(p.grad), _version(p.grad)) for p in self._watched_parameters() if p.grad is not None]
        return Snapshot(
            self.randomness.capture(),
            self.encoded_values(closely=False),
            dict(zip(tensors, targets, strict=True)),
            gradients,
            self._scaler_stages(),
        )

    def restore(self, snapshot: Snapshot) -> None:
        with torch.no_grad():
            for name, tensor in self.mutable_tensors():
                if name in snapshot.tensors:  # else the attempt made it, and the redo will set it again
                    local_tensor(tensor).copy_(snapshot.tensors[name])
            if not self.gradients_matter:
                self._refuse_additions()
            for _, parameter in self.parameters():
                kept = snapshot.gradients.get(id(parameter))
                parameter.grad = kept[0] if kept is not None else None
                if kept is not None:
                    local_tensor(kept[0]).copy_(kept[1])
        now = self.encoded_values(closely=False)
        for entry, data in snapshot.values.items():
            if now.get(entry) != data:
                self.load_value(entry, data, beside=False)  # which changes behind the vote only
        for name, stages in snapshot.scalers.items():
            self.values[name]._per_optimizer_states.clear()
            self.values[name]._per_optimizer_states.update({key: dict(value) for key, value in stages.items()})
        self.randomness.restore(snapshot.streams)

    def _refuse_additions(self) -> None:
        """Raises `Misuse` if the gradients found at begin, which are dropped as a rule, have been added to: there is no copy of them."""
        present = {id(p.grad) for p in self._watched_parameters() if p.grad is not None}
        there = [v == _version(g) for r, v in self._found if (g := r()) is not None and id(g) in present]
        if not all(there):
            raise Misuse(
                "this step adds to gradients of an earlier step, which all steps so far had dropped, and was interrupted: it cannot be "
                "redone. Accumulate gradients inside one @job.step"
            )

    def _scaler_stages(self) -> dict[str, dict[Any, Any]]:
        """Where a GradScaler stands between unscale and update: not part of its state_dict, but changed by an attempt."""
        return {
            name: {key: dict(value) for key, value in thing._per_optimizer_states.items()}
            for name, thing in self.values.items()
            if isinstance(thing, GradScaler) and thing.is_enabled()  # a disabled one has none
        }

    def _watched_parameters(self) -> list[torch.Tensor]:
        """Those whose gradients are watched: all at first, then two of each group, because whoever drops one drops all."""
        if self.gradients_matter:
            return [parameter for optimizer in self.optimizers.values() for parameter in parameters_of(optimizer)]
        return [parameter for optimizer in self.optimizers.values() for parameter in ends_of(optimizer)]

    def keep_gradients(self) -> None:
        """Before a section, which may read the gradients of the last step: from now on they belong to the state. This is before anybody
        joins a new generation there, because a rank that has lost its gradients in the meantime could not learn it any more.
        """
        if any(p.grad is not None for p in self._watched_parameters()):
            self.gradients_kept += 1
            self.gradients_matter = True

    def learn_gradients(self, carried: bool) -> None:
        """At a step's commit: whether the gradients that exist now belong to the state of the job.

        They do if no optimizer was stepped (`carried`): a later transaction adds to them. After an optimizer step they usually do
        not, because the next step drops them first (`zero_grad`), or this one has dropped them itself. That is not assumed but watched:
        it counts once two steps have dropped all that they found or made, and no longer as soon as one has not.
        """
        if not self._found:
            self.gradients_dropped += all(p.grad is None for p in self._watched_parameters())
        else:
            present = {id(p.grad) for p in self._watched_parameters() if p.grad is not None}
            alive = [gradient for reference, _ in self._found if (gradient := reference()) is not None]
            if any(id(gradient) in present for gradient in alive):
                self.gradients_kept += 1
            else:
                self.gradients_dropped += 1
        self.gradients_matter = carried or self.gradients_kept > 0 or self.gradients_dropped < 2

    # -- digests ---------------------------------------------------------------------------------------------------------

    def digests(self, tensors: dict[str, torch.Tensor], known: Mapping[str, int] | None = None) -> dict[str, int]:
        """Digest of each tensor, with its shard in it, and of each value. Those of tensors that are `known` are not made again."""
        return self.digests_of(tensors, self.encoded_values(), known)

    @staticmethod
    def digests_of(tensors: dict[str, torch.Tensor], values: dict[str, bytes], known: Mapping[str, int] | None = None) -> dict[str, int]:
        """The same of these `values`. Reads nothing else, so that it may run on another thread."""
        there = known or {}
        found = {name: there[name] if name in there else digest_of(tensor) for name, tensor in tensors.items()}
        return found | {name: digest_bytes(data) for name, data in values.items()}


def digest_of(tensor: torch.Tensor) -> int:
    """The digest of this rank's part of a tensor, with which part it is."""
    value, shard = digest(local_tensor(tensor)), _shard(tensor)
    return value ^ digest_bytes(shard.encode()) if shard else value
