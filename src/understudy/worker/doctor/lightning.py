"""Probe of Lightning, where it is installed: a Trainer trains a batch, and what the integration relies on is looked at."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from types import ModuleType
from typing import Any

from understudy.worker.doctor.base import NotHere, Probe, expect, module

_USERS = ("data", "files", "fit", "metrics", "points", "progress", "registration", "takeover")
_OF_TRAINER = {
    "": "_logger_connector _val_check_time_interval",
    "_logger_connector": "_callback_metrics _current_fx _first_loop_iter _logged_metrics _progress_bar_metrics",
    "fit_loop": "_combined_loader _data_fetcher",
    "fit_loop._combined_loader": "_iterator",
    "fit_loop._combined_loader._iterator": "_idx iterators",
    "fit_loop.epoch_loop": "_batches_that_stepped _restart_stage _results _should_check_val_fx _skip_next_val",
    "fit_loop.epoch_loop.val_loop": "_combined_loader _has_run _results _seen_batches_per_dataloader",
    "lightning_module": "_current_fx_name _metric_attributes",
    "strategy": "_lightning_optimizers",
}
_OF_ENTRY = ("value", "cumulated_batch_size", "has_reset", "_forward_cache", "_computed", "_update_count", "meta")


def _trainer() -> None:
    name = next((name for name in ("lightning", "pytorch_lightning") if importlib.util.find_spec(name)), "")
    if not name:
        raise NotHere("lightning is not installed")
    root = "lightning.pytorch" if name == "lightning" else name
    torch, pl = module("torch"), module(root)
    random = torch.get_rng_state()
    log = logging.getLogger(root)
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _train(torch, pl)
    finally:
        log.setLevel(level)
        torch.set_rng_state(random)
    call, result = module(f"{root}.trainer.call"), module(f"{root}.trainer.connectors.logger_connector.result")
    for function in ("_call_callback_hooks", "_call_lightning_module_hook", "_call_strategy_hook"):
        expect(callable(getattr(call, function, None)), f"{function} is in trainer.call")
    sync = result._Sync(_should=True, _op="mean")
    expect((sync.should, sync.op, sync.group) == (True, "mean", None), "_Sync takes _should, _op and _group")
    expect("_sync" in result._Metadata.__dataclass_fields__, "_Metadata has _sync")
    expect(callable(pl.Trainer._run), "Trainer has _run")
    expect(callable(module(f"{root}.loops.fit_loop")._set_sampler_epoch), "_set_sampler_epoch is in loops.fit_loop")
    logger = module(f"{root}.loggers").CSVLogger("unused")
    expect(logger._version is None and callable(logger._get_next_version), "a CSVLogger has _version and _get_next_version")
    expect(logger._experiment is None, "a CSVLogger makes _experiment when it is first used")
    saving = module(f"{root}.callbacks").ModelCheckpoint(dirpath=".")
    expect(hasattr(saving, "_last_time_checked") and hasattr(saving, "_fs"), "a ModelCheckpoint has _fs and _last_time_checked")
    expect(hasattr(module(f"{root}.strategies").DDPStrategy(), "_ddp_comm_hook"), "a DDPStrategy has _ddp_comm_hook")


def _train(torch: ModuleType, pl: ModuleType) -> None:
    seen: list[str] = []

    class Net(pl.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: Any, number: int) -> Any:
            loss = self.layer(batch).sum()
            self.log("loss", loss, on_step=True, on_epoch=True)
            return loss

        def on_train_batch_end(self, outputs: Any, batch: Any, number: int) -> None:
            seen.extend(_lacks(self.trainer))

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(max_steps=1, accelerator="cpu", devices=1, barebones=False, **quiet)
    trainer.fit(Net(), torch.utils.data.DataLoader(torch.ones(2, 1)))
    expect(trainer.global_step == 1 and not seen, f"a Trainer has {', '.join(seen)}")


def _lacks(trainer: Any) -> list[str]:
    """Return what a trainer lacks in a hook after a batch."""
    found = []
    for path, names in _OF_TRAINER.items():
        owner = trainer
        for part in filter(None, path.split(".")):
            owner = getattr(owner, part)
        found += [f"{path}.{name}".strip(".") for name in names.split() if not hasattr(owner, name)]
    (entry,) = trainer.fit_loop.epoch_loop._results.values()
    return found + [f"an entry of _results with {name}" for name in _OF_ENTRY if not hasattr(entry, name)]


LIGHTNING = (
    Probe(
        "lightning",
        "the Trainer of a script is divided into steps and sections",
        ("integrations.attributes", *(f"integrations.lightning.{name}" for name in _USERS)),
        (
            *("_batches_that_stepped", "_call_callback_hooks", "_call_lightning_module_hook", "_call_strategy_hook", "_callback_metrics"),
            *("_combined_loader", "_computed", "_current_fx", "_current_fx_name", "_data_fetcher", "_ddp_comm_hook", "_experiment"),
            *("_first_loop_iter", "_forward_cache", "_fs", "_get_next_version", "_group", "_has_run", "_idx", "_iterator"),
            *("_last_time_checked", "_lightning_optimizers", "_logged_metrics", "_logger_connector", "_metric_attributes", "_op"),
            *("_progress_bar_metrics", "_restart_stage", "_results", "_run", "_seen_batches_per_dataloader", "_set_sampler_epoch"),
            *("_should", "_should_check_val_fx", "_skip_next_val", "_sync", "_update_count", "_val_check_time_interval", "_version"),
        ),
        _trainer,
        without="scripts that call Trainer.fit need Lightning 2.6.6",
    ),
)
