"""What DDP, FSDP2 and pipeline schedules keep between calls: as it was for a redo, given to newcomers, compared.

All of it is read from the objects, at moments that are the same on all ranks:

- *In front of each vote* a pending rebuild of DDP's buckets happens (it would happen in the next forward), so that none is pending between
  two transactions. A rebuild in the middle of a transaction, as with two forwards in a step, happens there.
- *At each begin* it is noted how each DDP is that can still change. A redo starts from there, so that its first backward uses the layout
  that the failed attempt began with.
- *In a recovery* every donor publishes `described`, which holds all that steers a collective. Newcomers make theirs the same as the others
  of the same process group (`adopt`). a `disagreement` is looked for among donors before anything is given, and by each newcomer before it
  is verified: nothing may be missing, nothing extra.
- *In each full comparison* all ranks compare the same once more.

Descriptions are compared among the ranks that use an object together: those of a DDP's process group, or of the mesh of `fully_shard`.
Other ranks may have others, as with pipelines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from understudy.worker.encoding.codec import encode
from understudy.worker.encoding.digests import digest_bytes
from understudy.worker.frameworks import ddp as data_parallel
from understudy.worker.frameworks import fsdp2 as fully_sharded
from understudy.worker.frameworks import pipelines
from understudy.worker.frameworks.comm_hooks import hooks_of
from understudy.worker.frameworks.ddp import Layout, Steering
from understudy.worker.state.registration import wrappers
from understudy.worker.state.registry import State
from understudy.worker.transport.groups import Groups

Facts = dict[str, Any]
Described = dict[str, list[Any]]  # name of an object -> the global ranks that use it, what it is called for a person, and its facts
STEERING = "buckets and synchronization"  # the fact that a newcomer adopts


class Frameworks:
    """The framework state of this rank."""

    def __init__(self, state: State, groups: Groups) -> None:
        self._state = state
        self._groups = groups
        self._known: list[DistributedDataParallel] | None = None  # none is made any more once this is asked for
        self._layouts: dict[int, tuple[bool, Layout]] = {}  # by id of the DDP: whether it was final when it was read, and it
        self._begun: list[Steering] = []  # of each DDP, as the present attempt found it
        self._switches: list[list[Any]] = []  # the same of the groups of FSDP2
        self._groups_of_fsdp: list[tuple[Any, Any]] | None = None  # with their modules
        self._schedules: list[pipelines.Begun] = []  # the same of pipelines

    def _data_parallel(self) -> list[DistributedDataParallel]:
        if self._known is None:
            self._known = wrappers(self._state)
        return self._known

    def sharded(self) -> list[Any]:
        """The modules of FSDP2."""
        return [part for module in self._state.modules.values() for part in module.modules() if fully_sharded.is_sharded(part)]

    def _sharded_groups(self) -> list[tuple[Any, Any]]:
        if self._groups_of_fsdp is None:
            self._groups_of_fsdp = [(module, group) for module in self.sharded() for group in fully_sharded.groups_of(module)]
        return self._groups_of_fsdp

    # -- an attempt ------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Inside a transaction, in front of its vote: lets pending rebuilds happen. Raises `RuntimeError` when a peer is lost."""
        for module in self._data_parallel():
            if not data_parallel.settled(module):
                data_parallel.settle(module)
        for _, group in self._sharded_groups():
            fully_sharded.refuse_unreduced(group)

    def begin(self) -> None:
        """Notes what a redo has to start from. A layout is read only when it may be another one than at the last begin."""
        self._switches = [fully_sharded.switches_of(module, group) for module, group in self._sharded_groups()]
        self._schedules = [pipelines.Begun(schedule) for schedule in pipelines.schedules()]
        self._begun = []
        for module in self._data_parallel():
            final = data_parallel.settled(module)
            known = self._layouts.get(id(module))
            if known is None or known[0] != final:
                known = self._layouts[id(module)] = final, data_parallel.layout_of(module)
            self._begun.append(data_parallel.steering_of(module, known[1]))

    def reset(self) -> None:
        """After a failed attempt that is redone, before tensors and gradients are put back: drops what it has left under way."""
        for part in self.sharded():
            fully_sharded.reset(part)

    def restore(self) -> None:
        """After that: everything as it was at begin. Groups have no peers at this time.

        A gradient that was a view of a bucket at begin becomes one of the bucket that is there now: DDP divides a view by the number of
        ranks, and multiplies any other gradient by the inverse, which gives other bits.
        """
        for module, steering in zip(self._data_parallel(), self._begun, strict=False):  # none, if the attempt did not come to its begin
            data_parallel.put(module, steering)
        for schedule in self._schedules:
            schedule.restore()
        for (module, group), switches in zip(self._sharded_groups(), self._switches, strict=False):
            fully_sharded.set_switches(module, group, switches)

    def meet_newcomers(self) -> None:
        """On a survivor, before it describes itself: brings what only a first step does to where a newcomer is."""
        self._layouts.clear()
        for module in self._data_parallel():
            if not data_parallel.settled(module):
                data_parallel.settle_alone(module)
            if module.static_graph:
                data_parallel.count_anew(module)

    # -- what the ranks tell each other ------------------------------------------------------------------------------------

    def described(self) -> Described:
        found: Described = {}
        members = {id(group): (name, ranks) for group, name, ranks in self._groups.members()}
        counts: dict[str, int] = {}
        for module in self._data_parallel():
            name, ranks = members.get(id(module.process_group), ("", []))
            counts[name] = counts.get(name, 0) + 1
            found[f"ddp/{name}/{counts[name]}"] = [
                list(ranks),
                f"DistributedDataParallel over {type(module.module).__qualname__} (number {counts[name]} of process group {name})",
                {
                    **data_parallel.options(module),
                    "communication hooks": [hook.name for hook in hooks_of(module.reducer)],
                    STEERING: data_parallel.read(module).packed(),
                },
            ]
        for key, whole in self._state.modules.items():
            for name, part in whole.named_modules():
                for number, (ranks, facts) in enumerate(fully_sharded.facts(part) if fully_sharded.is_sharded(part) else []):
                    title = f"fully_shard of {key}{'.' if name else ''}{name}"
                    found[f"fsdp/{key}/{name}/{number}/{ranks}"] = [ranks, title, facts]
        for number, schedule in enumerate(pipelines.schedules()):
            found |= _pipeline(number, schedule, members)
        return found

    def adopt(self, told: Mapping[int, Described]) -> None:
        """On a newcomer, still without peers: makes everything as those have it who use it together with this rank."""
        self._layouts.clear()
        mine = [(name, entry) for name, entry in self.described().items() if name.startswith("ddp/")]
        for module, (name, entry) in zip(self._data_parallel(), mine, strict=True):
            theirs = next((told[rank][name] for rank in sorted(told) if rank in entry[0] and name in told[rank]), None)
            if theirs is not None:
                data_parallel.put(module, Steering(*theirs[2][STEERING]), anew=True)
        self._adopt_switches(told)
        for number, schedule in enumerate(pipelines.schedules()):
            name = _own_name(number, schedule)
            theirs = next((told[rank][name] for rank in sorted(told) if name in told[rank]), None)
            if theirs is not None:
                pipelines.adopt(schedule, *theirs[2]["set up"])

    def _adopt_switches(self, told: Mapping[int, Described]) -> None:
        mine = [(name, entry) for name, entry in self.described().items() if name.startswith("fsdp/")]
        for (module, group), (name, entry) in zip(self._sharded_groups(), mine, strict=True):
            theirs = next((told[rank][name] for rank in sorted(told) if rank in entry[0] and name in told[rank]), None)
            if theirs is not None:
                fully_sharded.set_switches(module, group, theirs[2][fully_sharded.SWITCHES])


def _pipeline(number: int, schedule: Any, members: Mapping[int, tuple[str, list[int]]]) -> Described:
    stages = pipelines.stages_of(schedule)
    name, ranks = members.get(id(stages[0].group or dist.group.WORLD), ("", []))
    title = f"{type(schedule).__qualname__} (number {number + 1}, process group {name})"
    found: Described = {f"pipeline/{name}/{number}": [list(ranks), title, pipelines.facts(schedule)]}
    for stage in stages:
        for first, other, shapes in pipelines.neighbours(schedule, stage):
            both = sorted([ranks[stage.group_rank], ranks[other]]) if ranks else []
            what = f"exchange of stages {first} and {first + 1} in a {title}"
            found[f"between/{name}/{number}/{first}/{both}"] = [both, what, {"shapes": shapes}]
    # For a newcomer with the same stages, in whatever pipeline: no group has these as its members, so nobody compares it.
    told = [[pipelines.shapes(stage), pipelines.is_dynamic(stage)] for stage in stages]
    found[_own_name(number, schedule)] = [[], title, {"set up": [pipelines.flags_of(schedule), told]}]
    return found


def _own_name(number: int, schedule: Any) -> str:
    return f"stages/{number}/{[int(stage.stage_index) for stage in pipelines.stages_of(schedule)]}"


def disagreement(told: Mapping[int, Described]) -> str:
    """What the ranks in `told` do not have in common and should, in words for a person; "" if nothing.

    Each is compared with the first one that uses the same object: as many comparisons as there are ranks.
    """
    for rank in sorted(told):
        for name, entry in told[rank].items():
            users = [user for user in entry[0] if user in told]
            if not users:
                continue
            if lacking := [user for user in (users if users[0] == rank else users[:1]) if name not in told[user]]:
                return f"rank {rank} has made a {entry[1]}, rank {lacking[0]} has not"
            if found := _between(users[0], told[users[0]][name], rank, entry):
                return found
    return ""


def _between(one: int, mine: list[Any], other: int, theirs: list[Any]) -> str:
    for fact in mine[2].keys() | theirs[2].keys():
        left, right = mine[2].get(fact), theirs[2].get(fact)
        if left != right:
            return f"{mine[1]}: {fact} {_short(left)} on rank {one}, {_short(right)} on rank {other}"
    return ""


def _short(value: Any) -> str:
    text = repr(value)
    return f"is {text if len(text) <= 120 else text[:117] + '...'}"


def brief(described: Described) -> Described:
    """The same with a digest in place of what is long: enough to tell whether two are equal."""

    def short(value: Any) -> Any:
        data = encode(value)
        return value if len(data) <= 64 else digest_bytes(data)

    return {
        name: [ranks, title, {fact: short(value) for fact, value in facts.items()}] for name, (ranks, title, facts) in described.items()
    }
