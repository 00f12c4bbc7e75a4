"""All names of Lightning that the integration relies on, most of them private. They are checked before anything is wrapped."""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType
from typing import Any

from understudy.messages import integrations
from understudy.worker.errors import UsageError

# Functions by module: a name, and its parameters without `self`.
_FUNCTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "loops.fit_loop": {
        "_FitLoop.on_run_start": (),
        "_FitLoop.on_advance_start": (),
        "_FitLoop.on_advance_end": (),
        "_FitLoop.on_iteration_done": (),
        "_FitLoop.on_run_end": (),
        "_FitLoop.run": (),
    },
    "loops.training_epoch_loop": {
        "_TrainingEpochLoop.advance": ("data_fetcher",),
        "_TrainingEpochLoop.on_advance_end": ("data_fetcher",),
        "_TrainingEpochLoop.on_iteration_done": (),
        "_TrainingEpochLoop.on_run_start": ("data_fetcher",),
    },
    "loops.evaluation_loop": {"_EvaluationLoop.setup_data": ()},
    "loops.fetchers": {"_PrefetchDataFetcher.__iter__": (), "_PrefetchDataFetcher.__next__": ()},
    "loops.progress": {"_BaseProgress.state_dict": (), "_BaseProgress.load_state_dict": ("state_dict",)},
    "loops.optimization.automatic": {"_AutomaticOptimization._training_step": ("kwargs",), "ClosureResult.asdict": ()},
    "callbacks.model_checkpoint": {"ModelCheckpoint.file_exists": ("filepath", "trainer")},
    "strategies.ddp": {"DDPStrategy.reduce": ("tensor", "group", "reduce_op")},
    "strategies.parallel": {"ParallelStrategy.reduce_boolean_decision": ("decision", "all")},
    "trainer.call": {
        "_call_callback_hooks": ("trainer", "hook_name", "args", "monitoring_callbacks", "kwargs"),
        "_call_lightning_module_hook": ("trainer", "hook_name", "args", "pl_module", "kwargs"),
        "_call_strategy_hook": ("trainer", "hook_name", "args", "kwargs"),
    },
    "fabric.loggers.csv_logs": {"_ExperimentWriter._check_log_dir_exists": ()},
    "trainer.trainer": {
        "Trainer._run": ("model", "ckpt_path", "weights_only"),
        "Trainer.save_checkpoint": ("filepath", "weights_only", "storage_options"),
    },
    "trainer.connectors.logger_connector.logger_connector": {
        "_LoggerConnector.on_batch_end": (),
        "_LoggerConnector.update_train_step_metrics": (),
    },
    "trainer.connectors.logger_connector.result": {
        "_Metadata": (
            *("fx", "name", "prog_bar", "logger", "on_step", "on_epoch", "reduce_fx", "enable_graph", "add_dataloader_idx"),
            *("dataloader_idx", "metric_attribute", "_sync"),
        ),
        "_ResultMetric": ("metadata", "is_tensor"),
        "_Sync": ("fn", "_should", "rank_zero_only", "_op", "_group"),
    },
}
# Attributes of the trainer before it trains, and of its parts.
_ATTRIBUTES = {
    "": "_val_check_time_interval accumulate_grad_batches callbacks loggers precision_plugin should_stop strategy",
    "_logger_connector": "_callback_metrics _current_fx _first_loop_iter _logged_metrics _progress_bar_metrics",
    "fit_loop": "_combined_loader _data_fetcher epoch_progress",
    "fit_loop.epoch_loop": "_batches_that_stepped _restart_stage _results _skip_next_val automatic_optimization manual_optimization",
    "fit_loop.epoch_loop.batch_progress": "is_last_batch",
    "fit_loop.epoch_loop.val_loop": "_combined_loader _has_run _results _seen_batches_per_dataloader",
    "state": "stage",
}


class Lightning:
    """The modules of one installation, `lightning.pytorch` or `pytorch_lightning`."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.version: str = getattr(importlib.import_module(root.partition(".")[0]), "__version__", "unknown")

    def module(self, name: str) -> ModuleType:
        """Return a module; names that begin with `fabric` are of Lightning Fabric, which is a package next to it."""
        fabric = {"lightning.pytorch": "lightning.fabric", "pytorch_lightning": "lightning_fabric"}[self.root]
        return importlib.import_module(name.replace("fabric", fabric, 1) if name.startswith("fabric.") else f"{self.root}.{name}")

    def has(self, thing: Any) -> bool:
        """Return whether Lightning defines the class of an object."""
        return type(thing).__module__.startswith(f"{self.root}.")

    def find(self, module: str, name: str) -> Any:
        """Return what is called `name` in a module. Raises `UsageError` if this version has nothing of this name."""
        try:
            found: Any = self.module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError):
            self.refuse(f"{self.root}.{module}.{name}")
        return found

    def refuse(self, name: str) -> None:
        """Raise `UsageError`: this version lacks `name`, or it has changed."""
        raise UsageError(integrations.LIGHTNING_CHANGED(version=self.version, name=name))

    def check(self, trainer: Any) -> None:
        """Raise `UsageError` if any name is missing, or has other parameters."""
        for module, functions in _FUNCTIONS.items():
            for name, wanted in functions.items():
                parameters = [one for one in inspect.signature(self.find(module, name)).parameters if one != "self"]
                if tuple(parameters) != wanted:
                    self.refuse(f"{self.root}.{module}.{name}{wanted!r}")
        for owner, names in _ATTRIBUTES.items():
            for name in names.split():
                thing = trainer
                for part in filter(None, [*owner.split("."), name]):
                    thing = getattr(thing, part, self)
                if thing is self:
                    self.refuse(".".join(filter(None, ["Trainer", owner, name])))
