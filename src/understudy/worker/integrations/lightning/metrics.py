"""The logged values of a `Trainer`. They differ from rank to rank, unless the script reduces them (`sync_dist`).

Each `self.log` has an entry in the results of a loop, which appears with its first call. On a newcomer, entries are made from their
description.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from understudy.messages import integrations
from understudy.worker.census.leaves import is_leaf
from understudy.worker.errors import UsageError
from understudy.worker.integrations.lightning.points import Lightning

_META = (
    "fx",
    "name",
    "prog_bar",
    "logger",
    "on_step",
    "on_epoch",
    "enable_graph",
    "add_dataloader_idx",
    "dataloader_idx",
    "metric_attribute",
)
_STATE = ("has_reset", "_forward_cache", "_computed", "_update_count")  # of each entry
_SUMS = ("value", "cumulated_batch_size")  # of entries that are tensors


class Outputs:
    """The outputs of the last step, for the hooks after it on a newcomer that has not computed it."""

    LARGEST = 1 << 20  # bytes of tensors

    def __init__(self) -> None:
        self.value: dict[str, Any] | None = None

    def put(self, value: dict[str, Any]) -> None:
        """Note outputs before the vote, if they can be moved."""
        tensors = [one for one in tree_leaves(value) if isinstance(one, torch.Tensor)]
        small = sum(one.numel() * one.element_size() for one in tensors) <= self.LARGEST
        self.value = tree_map(_detached_value, value) if small and is_leaf(value) else None

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


class Metrics:
    """The results of the training and the validation loop, and the values that were last shown, logged, and given to callbacks."""

    def __init__(self, trainer: Any, lightning: Lightning) -> None:
        self._trainer = trainer
        module = "trainer.connectors.logger_connector.result"
        self._entry: Callable[..., Any] = lightning.find(module, "_ResultMetric")
        self._meta: Callable[..., Any] = lightning.find(module, "_Metadata")
        self._sync: Callable[..., Any] = lightning.find(module, "_Sync")

    def state_dict(self) -> dict[str, Any]:
        epoch, logging = self._trainer.fit_loop.epoch_loop, self._trainer._logger_connector
        return {
            "training": _described(epoch._results),
            "validation": _described(epoch.val_loop._results),
            "shown": dict(logging._progress_bar_metrics),
            "logged": _detached(logging._logged_metrics),
            "for callbacks": _detached(logging._callback_metrics),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        epoch, logging = self._trainer.fit_loop.epoch_loop, self._trainer._logger_connector
        self._set(epoch._results, state["training"])
        self._set(epoch.val_loop._results, state["validation"])
        for there, content in (
            (logging._progress_bar_metrics, state["shown"]),
            (logging._logged_metrics, state["logged"]),
            (logging._callback_metrics, state["for callbacks"]),
        ):
            there.clear()
            there.update(content)

    def _set(self, results: Any, state: list[Any]) -> None:
        kept = {key: results.get(key) for key, *_ in state}
        results.clear()
        for key, meta, sync, values, sums in state:
            entry = kept[key] if kept[key] is not None else self._made(meta, sync, sums is not None)
            for name, value in {**values, **(sums or {})}.items():
                setattr(entry, name, value)
            if sums is None:
                entry.value = dict(self._trainer.lightning_module.named_modules())[meta["metric_attribute"]]
            results[key] = entry

    def _made(self, meta: dict[str, Any], sync: list[Any], is_tensor: bool) -> Any:
        reduction, should, rank_zero_only, operation = sync
        made = self._meta(**meta, reduce_fx=getattr(torch, reduction))
        reduce = self._trainer.strategy.reduce
        made.sync = self._sync(fn=reduce, _should=should, rank_zero_only=rank_zero_only, _op=operation)
        return self._entry(made, is_tensor)


def _detached(values: dict[str, Any]) -> dict[str, Any]:
    return {name: _detached_value(value) for name, value in values.items()}


def _detached_value(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


def _described(results: Any) -> list[Any]:
    """Return the entries in their order: key, meta data, reduction, values, and sums or None."""
    found = []
    for key, entry in results.items():
        meta = entry.meta
        if meta.sync.group is not None:
            raise UsageError(integrations.LIGHTNING_SYNC_GROUP(name=meta.name))
        sync = [meta.reduce_fx.__name__, meta.sync.should, meta.sync.rank_zero_only, meta.sync.op]
        sums = _detached({name: getattr(entry, name) for name in _SUMS if hasattr(entry, name)}) if entry.is_tensor else None
        values = _detached({name: getattr(entry, name) for name in _STATE})
        found.append([key, {name: getattr(meta, name) for name in _META}, sync, values, sums])
    return found
