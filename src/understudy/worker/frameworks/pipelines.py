"""Schedules of torch.distributed.pipelining: their state between calls is restored by a redo, given to newcomers, and compared.

A failed attempt leaves losses, cached activations and pending receives, which the redo must not find. And in its first iteration a
schedule agrees with its neighbours: all vote on how to find out the shapes of what they exchange, compute with every stage once to
learn them, and send them on. That may change buffers and costs messages that the survivors would not answer, so a newcomer does not do
it: it is sent the shapes by a rank that has the same stages (there is one, or else its parameters would be lost), and sets itself up
with them. The same applies to the change between training and evaluation, after which stages agree again.

Schedules are found where they are made, so one that is made after training began is refused: the newcomer's would be another one.

Limits: stages of the traced frontend (`pipeline()`), and DTensors between stages, are refused.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist

from understudy.messages import frameworks
from understudy.worker import patches
from understudy.worker.errors import UsageError
from understudy.worker.frameworks.base import Described, FrameworkAdapter, Memberships, Registered, SharedObject, described_by_users

_MODULE = "torch.distributed.pipelining.schedules"
SET_UP = "set up"  # the fact that a newcomer adopts
_made: list[Any] = []

# The attributes that a first iteration sets up in a stage, and those in a schedule (those of one stage and of several have other names for
# it).
_SET_UP = ("_stage_meta", "_inference_mode", "args_recv_info", "act_send_info", "grad_recv_info", "grad_send_info", "chunks")
_FLAGS = (("_stage_forward_initialized", "_stage_backward_initialized"), ("_stages_forward_initialized", "_stages_backward_initialized"))
# The attributes that an iteration leaves set when it fails.
_STALE_IN_STAGE = ("fwd_cache", "bwd_cache", "output_chunks", "backward_state", "dw_runner")
_STALE_IN_SCHEDULE = ("_internal_losses", "backward_counter", "bwd_recv_ops", "fwd_recv_ops", "unshard_ops", "unsharded_stages")
_FOR_BACKWARD = ("_fwd_outputs_for_bwd_meta", "_fwd_inputs_for_bwd_meta", "_fwd_kwargs_tensors_for_bwd_meta")


@dataclass(frozen=True)
class Stage:
    """The shapes that a stage has agreed on with its neighbours."""

    shapes: list[Any]  # of inputs, outputs, and the gradients of both
    dynamic: bool  # found by computing with the stage

    @classmethod
    def unpacked(cls, data: Any) -> Stage:
        match data:
            case [[*shapes], bool(dynamic)] if len(shapes) == 4 and all(kind is None or isinstance(kind, list) for kind in shapes):
                return cls(shapes, dynamic)
        raise ValueError(frameworks.NOT_A_STAGE(found=repr(data)[:200]))


@dataclass(frozen=True)
class PipelineSetUp:
    """The set-up of a schedule that has been used."""

    flags: list[bool]  # whether its stages have agreed on shapes, for the forward and for the backward
    stages: list[Stage]

    def packed(self) -> list[Any]:
        return [self.flags, [[stage.shapes, stage.dynamic] for stage in self.stages]]

    @classmethod
    def unpacked(cls, data: Any) -> PipelineSetUp:
        """Decode. Raises `ValueError` for anything but the result of `packed`."""
        match data:
            case [[bool(), bool()] as flags, [*stages]]:
                return cls(flags, [Stage.unpacked(stage) for stage in stages])
        raise ValueError(frameworks.NOT_A_SET_UP(found=repr(data)[:200]))


class Pipelines(FrameworkAdapter):
    def __init__(self, registered: Registered, groups: Memberships) -> None:
        super().__init__(registered, groups)
        self._begun: list[Begun] = []

    def watch(self, training: Callable[[], bool]) -> None:
        watch(training)

    def uncovered(self) -> str:
        return unsupported()

    def begin(self) -> None:
        self._begun = [Begun(schedule) for schedule in schedules()]

    def restore(self) -> None:
        for schedule in self._begun:
            schedule.restore()

    def described(self) -> Described:
        found: Described = {}
        members = {id(group): (name, ranks) for group, name, ranks in self.groups.members()}
        for number, schedule in enumerate(schedules()):
            found |= _described(number, schedule, members)
        return found

    def adopt(self, reports: Mapping[int, Described]) -> None:
        for number, schedule in enumerate(schedules()):
            if (theirs := described_by_users(reports, _own_name(number, schedule))) is not None:
                adopt(schedule, PipelineSetUp.unpacked(theirs.facts[SET_UP]))


def _described(number: int, schedule: Any, members: Mapping[int, tuple[str, list[int]]]) -> Described:
    stages = stages_of(schedule)
    name, ranks = members.get(id(stages[0].group or dist.group.WORLD), ("", []))
    title = f"{type(schedule).__qualname__} (number {number + 1}, process group {name})"
    found: Described = {f"pipeline/{name}/{number}": SharedObject(tuple(ranks), title, facts(schedule))}
    for stage in stages:
        for first, other, exchanged in neighbours(schedule, stage):
            both = sorted([ranks[stage.group_rank], ranks[other]]) if ranks else []
            what = f"exchange of stages {first} and {first + 1} in a {title}"
            found[f"between/{name}/{number}/{first}/{both}"] = SharedObject(tuple(both), what, {"shapes": exchanged})
    # For a newcomer with the same stages, in whatever pipeline: no group has these as its members, so they are not compared.
    set_up = PipelineSetUp(flags_of(schedule), [Stage(shapes(stage), is_dynamic(stage)) for stage in stages])
    found[_own_name(number, schedule)] = SharedObject((), title, {SET_UP: set_up.packed()})
    return found


def _own_name(number: int, schedule: Any) -> str:
    return f"stages/{number}/{[int(stage.stage_index) for stage in stages_of(schedule)]}"


# -- finding them ------------------------------------------------------------------------------------------------------------


class _Finder(importlib.abc.MetaPathFinder):
    """Wraps the constructor of schedules when torch's module is imported, which costs a second and which most scripts never do."""

    def __init__(self, wrap: Callable[[ModuleType], None]) -> None:
        self._wrap = wrap

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_wrap(module: ModuleType) -> None:
                run(module)
                self._wrap(module)

            spec.loader.exec_module = run_and_wrap  # type: ignore[method-assign]
        return spec


def watch(training: Callable[[], bool]) -> None:
    """Note every schedule that is made from now on. `training`: whether the first transaction has begun."""

    def wrap(module: ModuleType) -> None:
        def init(make: Callable[..., None], schedule: Any, *args: Any, **kwargs: Any) -> None:
            if training():
                raise UsageError(frameworks.SCHEDULE_LATE(schedule=type(schedule).__qualname__))
            make(schedule, *args, **kwargs)
            _made.append(schedule)

        patches.wrap(module._PipelineSchedule, "__init__", init, "a newcomer must have the same schedules")

    if (module := sys.modules.get(_MODULE)) is not None:
        wrap(module)
    else:
        sys.meta_path.insert(0, _Finder(wrap))


def schedules() -> list[Any]:
    """Return all schedules, in the order in which they were made."""
    return _made


def stages_of(schedule: Any) -> list[Any]:
    many = getattr(schedule, "_stages", None)
    return list(many) if many is not None else [schedule._stage]


def unsupported() -> str:
    """Return what of the schedules could not be given to a newcomer, for a person, or ""."""
    for schedule in _made:
        for stage in stages_of(schedule):
            if type(stage).__name__ != "PipelineStage":
                return frameworks.OTHER_STAGE(schedule=type(schedule).__qualname__, stage=type(stage).__qualname__)
    return ""


# -- an attempt --------------------------------------------------------------------------------------------------------------


def flags_of(schedule: Any) -> list[bool]:
    """Return whether its stages have agreed on shapes, for the forward and for the backward."""
    return [bool(getattr(schedule, name)) for names in _FLAGS for name in names if hasattr(schedule, name)]


def _set_flags(schedule: Any, flags: Sequence[bool]) -> None:
    names = [name for names in _FLAGS for name in names if hasattr(schedule, name)]
    for name, value in zip(names, flags, strict=True):
        setattr(schedule, name, value)


class Begun:
    """A schedule as an attempt found it."""

    def __init__(self, schedule: Any) -> None:
        self._schedule = schedule
        self._flags = flags_of(schedule)
        self._has_backward = schedule._has_backward
        self._stages = [(stage, {name: copy(getattr(stage, name)) for name in _SET_UP}) for stage in stages_of(schedule)]

    def restore(self) -> None:
        schedule = self._schedule
        _clear(schedule, _STALE_IN_SCHEDULE)
        _set_flags(schedule, self._flags)
        schedule._has_backward = self._has_backward
        for stage, held in self._stages:
            for name, value in held.items():
                setattr(stage, name, copy(value))
            stage.clear_runtime_states()
            _clear(stage, _STALE_IN_STAGE)
            for name in _FOR_BACKWARD:
                setattr(stage, name, None)


def _clear(thing: Any, names: Sequence[str]) -> None:
    for name in names:
        if hasattr(thing, name):
            getattr(thing, name).clear()


# -- what ranks send each other ------------------------------------------------------------------------------------------------


def facts(schedule: Any) -> dict[str, Any]:
    """Return what all ranks of its pipeline have in common."""
    return {
        "microbatches": int(schedule._n_microbatches),
        "stages": int(schedule._num_stages),
        "agreed on shapes": flags_of(schedule),
        "gradients are scaled": bool(schedule.scale_grads),
    }


def shapes(stage: Any) -> list[Any]:
    """Return the shapes that a stage receives and sends: inputs, outputs, gradients of both. None if they are not known yet."""
    metas = stage._stage_meta
    return [_packed(stage, kind) for kind in (metas.inputs, metas.outputs, metas.input_grads, metas.output_grads)]


def neighbours(schedule: Any, stage: Any) -> list[tuple[int, int, list[Any]]]:
    """Return the stages on other ranks that it exchanges tensors with: number of the first of both, the other's rank in the group, and the
    shapes.
    """
    inputs, outputs, _, _ = shapes(stage)
    found = []
    ranks = stage.stage_index_to_group_rank
    if not stage.is_first and ranks[stage.stage_index - 1] != stage.group_rank:
        found.append((stage.stage_index - 1, int(ranks[stage.stage_index - 1]), inputs))
    if not stage.is_last and ranks[stage.stage_index + 1] != stage.group_rank:
        found.append((stage.stage_index, int(ranks[stage.stage_index + 1]), outputs))
    return found


def adopt(schedule: Any, reports: PipelineSetUp) -> None:
    """Set up the schedule, on a newcomer, as if its stages had agreed on the shapes in `reports`."""
    from torch.distributed.pipelining._utils import InferenceMode

    _clear(schedule, _STALE_IN_SCHEDULE)
    flags = reports.flags
    _set_flags(schedule, flags)
    for stage, there in zip(stages_of(schedule), reports.stages, strict=True):
        if not flags[0]:
            continue
        inputs, outputs, input_grads, output_grads = [_unpacked(kind) for kind in there.shapes]
        stage._inference_mode = InferenceMode.DYNAMIC if there.dynamic else InferenceMode.STATIC
        meta = stage._stage_meta
        meta.inputs, meta.outputs, meta.input_grads, meta.output_grads = inputs, outputs, input_grads, output_grads
        stage._setup_forward_recv_info(schedule._n_microbatches, bool(flags[1]))
        stage._setup_forward_send_info()
        if flags[1]:
            stage._setup_backward_recv_info(schedule._n_microbatches)


def is_dynamic(stage: Any) -> bool:
    """Return whether shapes were found by computing with the stage."""
    return getattr(stage._inference_mode, "name", "") == "DYNAMIC"


def _packed(stage: Any, metas: Any) -> Any:
    if metas is None:
        return None
    if any(meta is not None and type(meta).__name__ != "_TensorMeta" for meta in metas):
        raise UsageError(frameworks.DTENSORS(stage=stage.stage_index))
    return [None if m is None else [list(m.shape), list(m.stride), m.dtype, bool(m.requires_grad)] for m in metas]


def _unpacked(metas: Any) -> Any:
    from torch.distributed.pipelining._utils import _TensorMeta

    if metas is None:
        return None
    return tuple(None if m is None else _TensorMeta(torch.Size(m[0]), tuple(m[1]), m[2], m[3]) for m in metas)
