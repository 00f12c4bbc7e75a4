"""The state of a `Trainer` that is the same on all ranks: counters and flags."""

from __future__ import annotations

import enum
from typing import Any

from understudy.worker.integrations.lightning.points import Lightning


class TrainerCounters:
    """The counters of the loops of `Trainer.fit`, and the flags that decide what follows. Read and set like any registered object."""

    def __init__(self, trainer: Any, lightning: Lightning) -> None:
        self._trainer = trainer
        self._stages, counters = lightning.find("trainer.states", "RunningStage"), lightning.find("loops.progress", "_BaseProgress")
        fit = trainer.fit_loop
        epoch = fit.epoch_loop
        loops = {"fit": fit, "epoch": epoch, "automatic": epoch.automatic_optimization, "manual": epoch.manual_optimization}
        self._counters = {
            f"{name}.{key}": counter
            for name, loop in {**loops, "validation": epoch.val_loop}.items()
            for key, counter in vars(loop).items()
            if isinstance(counter, counters)
        }

    def state_dict(self) -> dict[str, Any]:
        trainer, epoch = self._trainer, self._trainer.fit_loop.epoch_loop
        logging = trainer._logger_connector
        return {
            "counters": {name: counter.state_dict() for name, counter in self._counters.items()},
            "epoch": [epoch._batches_that_stepped, epoch._skip_next_val, epoch._restart_stage],
            "validation": [epoch.val_loop._has_run, dict(epoch.val_loop._seen_batches_per_dataloader)],
            "trainer": [trainer.should_stop, trainer.accumulate_grad_batches, _name(trainer.state.stage)],
            "logging": [logging._current_fx, logging._first_loop_iter],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        trainer, epoch = self._trainer, self._trainer.fit_loop.epoch_loop
        logging, seen = trainer._logger_connector, epoch.val_loop._seen_batches_per_dataloader
        for name, counter in self._counters.items():
            counter.load_state_dict(state["counters"][name])
        epoch._batches_that_stepped, epoch._skip_next_val, epoch._restart_stage = state["epoch"]
        epoch.val_loop._has_run = state["validation"][0]
        seen.clear()
        seen.update(state["validation"][1])
        trainer.should_stop, trainer.accumulate_grad_batches, stage = state["trainer"]
        trainer.state.stage = self._stages(stage) if stage is not None else None
        logging._current_fx, logging._first_loop_iter = state["logging"]


def _name(stage: enum.Enum | None) -> str | None:
    return stage.value if stage is not None else None
