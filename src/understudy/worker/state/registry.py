"""The registered state of a rank: what is copied at `begin`, restored before a redo, compared, and moved to a newcomer.

Three kinds of content:

- *tensors*: parameters, buffers, registered tensors, optimizer moments. Moved in place, memory to memory. Of a DTensor it is the local
  shard. The optimizer's moments need not exist on a newcomer: they are made from the donor's description.
- *values*: everything small that has `state_dict`/`load_state_dict` (schedulers, GradScaler, own objects), and an optimizer's
  hyper-parameters. Handled as encoded bytes.
- *streams*: random number generators.

At `begin` a copy is taken of what an attempt may change before its vote: buffers, registered tensors, values, streams, and gradients
that already exist (accumulation over several transactions). Parameters and moments change only after the vote, so no second copy of
them exists.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from understudy.messages import registered, script
from understudy.worker.encoding.canonical import canonical
from understudy.worker.encoding.codec import Unencodable, decode, encode
from understudy.worker.encoding.digests import digest_bytes, flat_bytes
from understudy.worker.encoding.messages import Streams, TensorDescription
from understudy.worker.errors import UnderstudyError, UsageError
from understudy.worker.state.attributes import Attributes, NotedAttributes, is_of_module
from understudy.worker.state.gradients import Gradients
from understudy.worker.state.optimizers import EncodedSettings, GroupNames, all_tensors, common_values, loose_values, parameters_of
from understudy.worker.state.sharding import Sharding, Whole, named_parameters
from understudy.worker.state.streams import Randomness
from understudy.worker.state.tensors import describe, digest_of, empty, fit, in_place, is_trained, local_tensor, put_back
from understudy.worker.state.unregistered import NoUnregisteredState, UnregisteredState, is_unregistered


@dataclass
class Snapshot:
    """The values that an attempt may change, as of its begin."""

    streams: Streams
    values: dict[str, bytes]
    tensors: dict[str, tuple[torch.Tensor, torch.Tensor]]  # the memory of each, and its content
    attributes: NotedAttributes
    unregistered: Any
    gradients: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)  # id of the parameter -> its gradient, content
    scalers: dict[str, dict[Any, Any]] = field(default_factory=dict)


Tensors = dict[str, torch.Tensor]  # by entry


class State:
    """Everything that the script has registered, by name."""

    def __init__(self, sharding: Sharding | None = None) -> None:
        self._sharding = sharding or Whole()
        self.names: set[str] = set()
        self.modules: dict[str, torch.nn.Module] = {}
        self.optimizers: dict[str, Optimizer] = {}
        self.values: dict[str, Any] = {}
        self.tensors: dict[str, torch.Tensor] = {}
        self.loaders: dict[str, Any] = {}
        self.owned: list[Any] = []  # objects for which something registered answers
        self.randomness = Randomness()
        self.attributes = Attributes(self.modules, self._sharding, self.optimizers)
        self.unregistered: UnregisteredState = NoUnregisteredState()
        self._copies: dict[str, torch.Tensor] = {}
        self._shards: dict[str, dict[tuple[int, str], torch.Tensor]] | None = None  # by module
        self._tables: list[tuple[int, dict[str, torch.nn.Parameter | None]]] | None = None  # parameters of each module, by its id
        self._group_names = GroupNames()
        self._buffers: list[tuple[str, torch.nn.Module]] | None = None  # modules that have buffers, with the names' prefixes
        self._settings: dict[str, EncodedSettings] = {}  # by optimizer
        self._with_values: set[str] = set()  # optimizers that keep something in addition to tensors
        self.kept_gradients = Gradients(self._trained)

    def covers(self, thing: Any) -> bool:
        """Return whether `thing` is a registered optimizer, or a part of a registered module, that training changes."""
        if isinstance(thing, torch.nn.Module):
            trained = any(parameter.requires_grad for parameter in thing.parameters())
            return trained and any(part is thing for module in self.modules.values() for part in module.modules())
        return any(thing is optimizer for optimizer in self.optimizers.values())

    def holds(self, thing: Any) -> bool:
        """Return whether `thing` is a registered optimizer, or a module that has tensors of a registered one."""
        if not isinstance(thing, torch.nn.Module):
            return any(thing is optimizer for optimizer in self.optimizers.values())
        mine = {id(tensor) for module in self.modules.values() for tensor in (*module.parameters(), *module.buffers())}
        return any(id(tensor) in mine for tensor in (*thing.parameters(), *thing.buffers()))

    def takes_care_of(self) -> Callable[[Any], bool]:
        """Return a test, as of now, whether a thing is registered, or is a part, a tensor, a gradient or a parameter group of something
        registered.
        """
        parts = [part for module in self.modules.values() for part in module.modules()]
        tensors = [tensor for part in parts for tensor in (*part._parameters.values(), *part._buffers.values()) if tensor is not None]
        tensors += self.tensors.values()
        gradients = [tensor.grad for tensor in tensors if tensor.is_leaf and tensor.grad is not None]
        streams = [*self.randomness.all_generators(), vars(random)["_inst"], vars(numpy.random.mtrand)["_rand"], torch.default_generator]
        groups = [part for one in self.optimizers.values() for part in (one.state, one.param_groups, *one.param_groups)]
        rest = [*self.optimizers.values(), *groups, *self.values.values(), *self.loaders.values(), *self.owned, *streams]
        known = {id(thing) for thing in (*parts, *tensors, *gradients, *rest)}
        return lambda thing: id(thing) in known

    def register(self, name: str, thing: Any) -> None:
        """Register `thing`. Raises `UsageError` if its state cannot be read and set."""
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
            raise UsageError(script.NO_STATE_DICT(name=name, type=type(thing).__qualname__))

    # -- tensors ---------------------------------------------------------------------------------------------------------

    def parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Return the parameters of modules (the shards, where these are sharded), and registered tensors that are trained."""
        if self._shards is None:
            self._shards = {key: self._sharding.shards_of(module) for key, module in self.modules.items()}
        for key, module in self.modules.items():
            for name, parameter in named_parameters(module, self._shards.get(key, {})):
                yield f"{key}/parameter/{name}", parameter
        for name, tensor in self.tensors.items():
            if is_trained(tensor):
                yield f"{name}/parameter/{name}", tensor

    def _trained(self) -> list[torch.Tensor]:
        """Return the same tensors in any order, some perhaps twice. Fast, because every step calls it."""
        if self._tables is None or self._shards is None:
            self._shards = {key: self._sharding.shards_of(module) for key, module in self.modules.items()}
            parts = [part for module in self.modules.values() for part in module.modules()]
            self._tables = [(id(part), part._parameters) for part in parts if part._parameters]
        found: list[torch.Tensor] = [parameter for _, table in self._tables for parameter in table.values() if parameter is not None]
        if any(self._shards.values()):
            shards = {place: shard for mine in self._shards.values() for place, shard in mine.items()}
            places = [(part, name) for part, table in self._tables for name, parameter in table.items() if parameter is not None]
            found = [shards.get(place, parameter) for place, parameter in zip(places, found, strict=True)]
        return found + [tensor for tensor in self.tensors.values() if is_trained(tensor)]

    def mutable_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Return the tensors that may change before a vote: buffers and registered tensors."""
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
            if not is_trained(tensor):
                yield f"{name}/tensor", tensor

    def fit(self, entry: str, description: TensorDescription) -> None:
        """Give a buffer or a registered tensor, on a newcomer, the described shape, if it has grown, or was None at the set-up's end."""
        present = dict(self.mutable_tensors()).get(entry)
        if present is None and "/buffer/" in entry:
            key, _, path = entry.partition("/buffer/")
            owner, _, name = path.rpartition(".")
            parts = dict(self.modules[key].named_modules())
            if owner in parts and name in parts[owner]._buffers:
                near = next(self.modules[key].parameters(), torch.empty(0))
                parts[owner]._buffers[name] = empty(description, near, entry)
                self.look_again()
        elif present is not None:
            fit(present, description, entry)

    def moments(self) -> Iterator[tuple[str, torch.Tensor]]:
        for key, optimizer in self.optimizers.items():
            for number, parameter in enumerate(parameters_of(optimizer)):
                for name, value in optimizer.state.get(parameter, {}).items():
                    if isinstance(value, torch.Tensor):
                        yield f"{key}/state/{number}/{name}", value

    def gradients(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Return the gradients that may belong to the state, without those that are withheld from newcomers."""
        for name, parameter in self.parameters():
            gradient = self.kept_gradients.of(parameter)
            if gradient is not None:
                yield f"{name}/gradient", gradient

    def made_gradients(self) -> dict[str, torch.Tensor]:
        """Return the gradients that the running transaction has made or added to, without those that it has only found."""
        made = ((name, self.kept_gradients.made(parameter)) for name, parameter in self.parameters())
        return {f"{name}/gradient": gradient for name, gradient in made if gradient is not None}

    def all_tensors(self) -> dict[str, torch.Tensor]:
        """Return every tensor that is part of this rank's state between two transactions."""
        self.look_again()
        found = dict(self.parameters())
        found |= dict(self.mutable_tensors())
        found |= dict(self.moments())
        if self.kept_gradients.matter:
            found |= dict(self.gradients())
        for name, tensor in found.items():
            local = local_tensor(tensor)
            if local.layout is not torch.strided:
                raise UsageError(script.SPARSE_TENSOR(name=name, layout=local.layout))
            try:
                flat_bytes(local)
            except ValueError as error:
                raise UsageError(script.UNMOVABLE_TENSOR(name=name, reason=str(error))) from error
        return found

    def look_again(self) -> None:
        """Forget the known parts of modules: they may have others now."""
        self._buffers = self._shards = self._tables = None

    def reshard(self) -> None:
        """Free gathered parameters, in a recovery: a newcomer has gathered nothing, so no rank may have."""
        for module in self.modules.values():
            self._sharding.reshard(module)

    def owners(self) -> dict[str, str]:
        """Return the parameter to which each moment belongs."""
        names = self._names()
        return {
            f"{key}/state/{number}/{name}": names.get(id(parameter), "")
            for key, optimizer in self.optimizers.items()
            for number, parameter in enumerate(parameters_of(optimizer))
            for name in optimizer.state.get(parameter, {})
        }

    def descriptions(self, tensors: dict[str, torch.Tensor]) -> dict[str, TensorDescription]:
        names = self._names()
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
        """Return the encoded values by entry; all of them, or `only` some.

        The values that optimizers keep in addition to tensors are searched for at all parameters if `closely`, else at two of each
        group until some were found.
        """
        found = {}
        for name, thing in self.values.items():
            if only is None or f"{name}/value" in only:
                found[f"{name}/value"] = self._encode_value(name, thing)
        found |= self.attributes.encoded(only, closely)
        found |= self.unregistered.encoded(only, closely and only is None)
        for key, optimizer in self.optimizers.items():
            if only is not None and f"{key}/settings" not in only:
                continue
            groups = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
            self._group_names.put(key, optimizer, groups, self._names, closely)
            others: list[Any] = [{}]
            if closely or key in self._with_values or not all_tensors(optimizer):
                loose, rest = loose_values(optimizer), common_values(optimizer)
                if loose or rest:
                    self._with_values.add(key)
                others = [canonical(loose), *([canonical(rest)] if rest else [])]
            try:
                found[f"{key}/settings"] = self._settings.setdefault(key, EncodedSettings()).of(groups, others)
            except Unencodable as error:
                raise UsageError(script.UNMOVABLE_SETTINGS(optimizer=key, reason=str(error))) from error
        return found

    @staticmethod
    def _encode_value(name: str, thing: Any) -> bytes:
        try:
            return encode(canonical(thing.state_dict()))
        except Unencodable as error:
            raise UsageError(script.UNMOVABLE_STATE(name=name, reason=str(error))) from error

    def _names(self) -> dict[int, str]:
        return {id(parameter): name for name, parameter in self.parameters()}

    def match_groups(self, values: Mapping[str, bytes]) -> None:
        """Make, on a newcomer, the groups of parameters that others have added or exchanged since the set-up. Raises `UnderstudyError`."""
        known = dict(self.parameters())
        for key, optimizer in self.optimizers.items():
            groups = decode(values[f"{key}/settings"])[0] if f"{key}/settings" in values else []
            mine = optimizer.param_groups
            for number, group in enumerate(groups):
                if number < len(mine) and "params" not in group:
                    continue
                names = group.get("params", [])
                if "params" not in group or not all(name in known for name in names):
                    raise UnderstudyError(registered.PARAMETERS_MISSING(optimizer=key))
                parameters = [known[name] for name in names]
                if number < len(mine):
                    mine[number]["params"] = parameters
                else:
                    optimizer.add_param_group({**group, "params": parameters})

    def load_value(self, entry: str, data: bytes, whole: bool = True) -> None:
        """Set a value as it was encoded; with `whole`, also what an optimizer keeps in addition to tensors."""
        if is_unregistered(entry):
            self.unregistered.load(entry, data)
            return
        name, kind = entry.rsplit("/", 1)
        if is_of_module(entry):
            self.attributes.load(entry, data)
        elif kind == "settings":
            optimizer = self.optimizers[name]
            groups, loose, *rest = decode(data)
            del optimizer.param_groups[len(groups) :]  # that an attempt has added
            for mine, theirs in zip(optimizer.param_groups, groups, strict=True):
                mine.update({k: in_place(mine.get(k), v) for k, v in theirs.items() if k != "params"})
            if not whole:
                return
            for others in rest:
                optimizer.state.update(others)
            for number, parameter in enumerate(parameters_of(optimizer)):
                optimizer.state[parameter].update(loose.get(number, {})) if number in loose else None
        else:
            self.values[name].load_state_dict(decode(data))

    # -- begin and redo --------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        if self.attributes.moved:
            self.look_again()
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
        if self.kept_gradients.matter:
            there = [(parameter, self.kept_gradients.of(parameter)) for parameter in self._trained()]
            gradients = {id(parameter): (g, local_tensor(g).clone()) for parameter, g in there if g is not None}
        self.kept_gradients.begin()
        return Snapshot(
            self.randomness.capture(),
            self.encoded_values(closely=False),
            dict(zip(tensors, zip(sources, targets, strict=True), strict=True)),
            self.attributes.note(),
            self.unregistered.note(),
            gradients,
            self._scaler_stages(),
        )

    def restore(self, snapshot: Snapshot) -> None:
        self.attributes.restore(snapshot.attributes)
        self.unregistered.restore(snapshot.unregistered, snapshot.values)
        self.look_again()
        with torch.no_grad():
            mutable = {
                name: tensor for name, tensor in self.mutable_tensors() if name in snapshot.tensors
            }  # the redo will set the others again
            for name, tensor in mutable.items():
                put_back(tensor, snapshot.tensors[name][0])
            for memory, content in snapshot.tensors.values():
                memory.copy_(content)
            for _, parameter in self.parameters():
                kept = snapshot.gradients.get(id(parameter)) if not self.kept_gradients.is_withheld(parameter) else None
                parameter.grad = kept[0] if kept is not None else self.kept_gradients.left(parameter)
                if kept is not None:
                    local_tensor(kept[0]).copy_(kept[1])
            self.kept_gradients.begin()
        now = self.encoded_values(closely=False)
        for entry, data in snapshot.values.items():
            if now.get(entry) != data and not is_unregistered(entry):
                self.load_value(entry, data, whole=False)  # which changes only after the vote
        for name, stages in snapshot.scalers.items():
            self.values[name]._per_optimizer_states.clear()
            self.values[name]._per_optimizer_states.update({key: dict(value) for key, value in stages.items()})
        self.randomness.restore(snapshot.streams)

    def _scaler_stages(self) -> dict[str, dict[Any, Any]]:
        """Return the state of each GradScaler between unscale and update: not part of its state_dict, but changed by an attempt."""
        return {
            name: {key: dict(value) for key, value in thing._per_optimizer_states.items()}
            for name, thing in self.values.items()
            if isinstance(thing, GradScaler) and thing.is_enabled()  # a disabled one has none
        }

    def set_up(self) -> None:
        """Record the values at the end of the set-up. Changes count from now on."""
        self.attributes.set_up()
        self.unregistered.set_up()
        self._group_names.set_up(self.optimizers, self._names())

    # -- digests ---------------------------------------------------------------------------------------------------------

    def digests(self, tensors: dict[str, torch.Tensor], known: Mapping[str, int] | None = None) -> dict[str, int]:
        """Return the digest of each tensor, including its shard, and of each value. Digests that are `known` are not computed again."""
        return self.digests_of(tensors, self.encoded_values(), known)

    @staticmethod
    def digests_of(tensors: dict[str, torch.Tensor], values: dict[str, bytes], known: Mapping[str, int] | None = None) -> dict[str, int]:
        """Return the digests of these `tensors` and `values`. Reads nothing else, so that it may run on another thread."""
        there = known or {}
        found = {name: there[name] if name in there else digest_of(tensor) for name, tensor in tensors.items()}
        return found | {name: digest_bytes(data) for name, data in values.items()}
