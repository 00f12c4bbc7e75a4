"""What a trainer holds: the objects that are registered, and those that these answer for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from understudy.worker.census.leaves import is_leaf
from understudy.worker.integrations.attributes import PlainAttributes
from understudy.worker.integrations.lightning.files import LogOfCSV
from understudy.worker.integrations.lightning.metrics import Metrics, Outputs
from understudy.worker.integrations.lightning.points import Lightning
from understudy.worker.integrations.lightning.progress import TrainerCounters

# Attributes of a LightningModule: the running hook, and names by the identity of objects, which the first `self.log` collects.
_OF_MODULE = ("_current_fx_name", "_metric_attributes")
# Hooks between an optimizer's step and the next one, where gradients still exist. A validation begins without gradients.
_HOOKS = ("log_metrics", "lr_scheduler_step", "on_train_batch_end", "on_train_end", "on_train_epoch_end", "on_train_epoch_start")


@dataclass(frozen=True)
class Holdings:
    """The contents of a trainer."""

    registered: dict[str, Any]  # by name
    owned: list[Any]  # objects, and pairs of a module and the name of an attribute
    reads_gradients: bool  # whether hooks of the script after the step may read the gradients
    others: tuple[Any, ...]  # objects of the script that only the census can follow


def holdings_of(trainer: Any, lightning: Lightning, outputs: Outputs) -> Holdings:
    """Return the contents of a trainer that is about to train."""
    strategy, module = trainer.strategy, trainer.lightning_module
    configurations, kind = trainer.lr_scheduler_configs, lightning.find("loggers", "CSVLogger")
    given = [*trainer.callbacks, *([trainer.datamodule] if trainer.datamodule is not None else [])]
    scaler = getattr(trainer.precision_plugin, "scaler", None)
    module.forward = module.forward  # an attribute from the first step on, which would count as a change
    registered = {
        "model": strategy.model,
        "optimizer": list(trainer.optimizers),
        "schedule": [configuration.scheduler for configuration in configurations],
        "progress": TrainerCounters(trainer, lightning),
        "metrics": Metrics(trainer, lightning),
        "outputs": outputs,
        "callback": {f"{number}-{type(one).__name__}": PlainAttributes(one) for number, one in enumerate(given)},
        "logger": {f"{number}": LogOfCSV(one) for number, one in enumerate(trainer.loggers) if isinstance(one, kind)},
        **({"scaler": scaler} if scaler is not None else {}),
    }
    parts = [part for part in vars(trainer).values() if lightning.has(part)]
    owned = [trainer, *parts, *given, *trainer.loggers, *strategy._lightning_optimizers, *configurations]
    owned += [(module, name) for name in _OF_MODULE]
    of_script = [one for one in given if not lightning.has(one)]
    others = tuple(value for one in of_script for value in vars(one).values() if not is_leaf(value) and not lightning.has(value))
    reads = any(_overrides(one, lightning) for one in (module, *of_script, *(one for one in trainer.loggers if not lightning.has(one))))
    return Holdings(registered, owned, reads, others)


def _overrides(thing: Any, lightning: Lightning) -> bool:
    """Return whether the script defines a hook that a section calls."""
    found = (getattr(type(thing), name, None) for name in _HOOKS)
    return any(hook is not None and not hook.__module__.startswith(f"{lightning.root}.") for hook in found)
