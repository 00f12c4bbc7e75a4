"""A drill at every step of a script of the conformance suite: a survivable script must not get any other verdict at any step.

The rank, another one each time, is paused between two transactions until its spare is ready (`tests.conformance.drills`), so that every
step is drilled in order. The result of a run must be that of torchrun, bit by bit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conformance import runs, verdict
from tests.conformance.drills import Place
from tests.conformance.scripts import Script

STEPS = 12
# Of different groups, each with something that a drill could take for a difference: streams, accumulation, pipelines, schedules, loaders.
SCRIPTS = (
    "ddp_plain",
    "ddp_batch_norm_and_evaluations",
    "ddp_find_unused_parameters",
    "ddp_accumulation_across_steps",
    "hsdp_plain",
    "hsdp_activation_checkpointing",
    "tensor_parallel_and_data_parallel",
    "pipeline_1f1b_with_ddp",
    "experts_all_to_all",
    "async_all_reduce_in_step",
    "send_and_recv_to_neighbours",
    "optimizer_sgd_nesterov",
    "optimizer_two_in_one_step",
    "schedule_one_cycle",
    "loader_stateful",
    "sampler_weighted",
    "augmentation_from_three_streams",
    "grad_scaler",
    "ema_averaged_model",
    "like_gan_tutorial",
)


@dataclass(frozen=True)
class Tried:
    script: Script
    drills: Sequence[Mapping[str, Any]]
    wrong: str

    @property
    def verdicts(self) -> Counter[str]:
        return Counter(str(drill["verdict"]) for drill in self.drills)

    def values(self) -> dict[str, Any]:
        return {"script": self.script.name, "group": self.script.group, "drills": list(self.drills), "wrong": self.wrong}


def attempt(script: Script, folder: Path) -> Tried:
    places = tuple(Place(step, step % script.ranks) for step in range(1, STEPS))  # after the first: before it no rank has committed
    reference = runs.reference(script)
    if bad := verdict.steady(reference):
        return Tried(script, (), bad.text)
    drilled = runs.understudy(script, folder / "drilled", places=places)
    found = verdict.undisturbed(script, reference, drilled)
    alarms = [verdict.of_drill(drill) for drill in drilled.drills if drill["verdict"] in verdict.AGAINST]
    proven = sum(drill["verdict"] == "same" for drill in drilled.drills)
    few = "" if proven >= _steps(reference) // 2 else f"only {proven} steps were proven"  # the last ones end with the job, perhaps
    wrong = "" if found.verdict in (verdict.BITWISE, script.expect) else found.text  # a survivable script may get a notice
    return Tried(script, drilled.drills, wrong or "; ".join(alarms) or few)


def _steps(reference: runs.Ran) -> int:
    """Return how many steps can be drilled: not the first, and not more than ranks are paused for."""
    return min(STEPS, reference.trace.steps) - 1
