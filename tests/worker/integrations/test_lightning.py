"""The integration with Lightning against the real library: names, refusals, and the state of a trainer. `make frameworks` runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.message_texts import refused
from torch.utils.data import DataLoader

from understudy.messages import integrations
from understudy.worker.encoding.codec import decode, encode
from understudy.worker.errors import UsageError
from understudy.worker.integrations.lightning.data import TrainingData
from understudy.worker.integrations.lightning.metrics import Metrics
from understudy.worker.integrations.lightning.points import Lightning
from understudy.worker.integrations.lightning.progress import TrainerCounters
from understudy.worker.integrations.lightning.takeover import take_over
from understudy.worker.state.streams import Randomness

pl = pytest.importorskip("lightning.pytorch", reason="lightning is not installed (make frameworks)")
callbacks = pytest.importorskip("lightning.pytorch.callbacks")
QUIET = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
LIGHTNING = "lightning.pytorch"


class Net(pl.LightningModule):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: torch.Tensor, number: int) -> torch.Tensor:
        loss = self.layer(batch.float().reshape(-1, 1)).square().mean()
        self.log("loss", loss, on_step=True, on_epoch=True, prog_bar=True)
        return loss  # type: ignore[no-any-return]

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(range(22), batch_size=4, shuffle=True)  # type: ignore[arg-type]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def trainer(**options: Any) -> Any:
    return pl.Trainer(accelerator="cpu", devices=1, **QUIET, **options)


def trained(at: int, look: Callable[[Any], Any]) -> Any:
    """Return what `look` returns for a trainer in the hook after batch `at`."""
    found = []

    class Looking(pl.Callback):  # type: ignore[misc, name-defined]
        def on_train_batch_end(self, one: Any, module: Any, outputs: Any, batch: Any, number: int) -> None:
            if number == at:
                found.append(look(one))

    one = trainer(max_epochs=1, callbacks=[Looking()])
    one.fit(Net())
    return found[0]


def never() -> Any:
    raise AssertionError("the group is made only if the trainer is supported")


def test_every_name_is_there() -> None:
    Lightning(LIGHTNING).check(trainer())


@pytest.mark.parametrize("change", ["removed", "other parameters"])
def test_a_method_that_has_changed_is_named(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = type(trainer().fit_loop.epoch_loop)
    if change == "removed":
        monkeypatch.delattr(loop, "advance")
    else:
        monkeypatch.setattr(loop, "advance", lambda self, fetcher, more: None)
    with refused(UsageError, integrations.LIGHTNING_CHANGED, version=pl.__version__):
        Lightning(LIGHTNING).check(trainer())


def test_other_strategies_are_refused() -> None:
    with refused(UsageError, integrations.LIGHTNING_STRATEGY, strategy="SingleDeviceStrategy"):
        take_over(LIGHTNING, trainer(), never)


@pytest.mark.parametrize(
    ("options", "feature"),
    [
        ({"callbacks": "StochasticWeightAveraging"}, "the callback StochasticWeightAveraging"),
        ({"reload_dataloaders_every_n_epochs": 1}, "reload_dataloaders_every_n_epochs"),
    ],
)
def test_unsupported_features_are_refused(options: dict[str, Any], feature: str) -> None:
    if "callbacks" in options:
        options = {"callbacks": [getattr(callbacks, options["callbacks"])(swa_lrs=0.1)]}
    one = trainer(strategy="ddp", **options)
    one.strategy._lightning_module = Net()
    with refused(UsageError, integrations.LIGHTNING_FEATURE, feature=feature):
        take_over(LIGHTNING, one, never)


def test_counters_and_logged_values_are_the_same_on_a_newcomer() -> None:
    lightning = Lightning(LIGHTNING)

    def look(one: Any) -> Any:
        return encode([TrainerCounters(one, lightning).state_dict(), Metrics(one, lightning).state_dict()])

    data = trained(2, look)
    progress, metrics = decode(data)
    assert metrics["training"][0][0] == "training_step.loss" and progress["counters"]["epoch.batch_progress"]["current"]["ready"] == 3
    newcomer = trainer()
    newcomer.strategy._lightning_module = Net()
    TrainerCounters(newcomer, lightning).load_state_dict(progress)
    Metrics(newcomer, lightning).load_state_dict(metrics)
    assert look(newcomer) == data
    sums = newcomer.fit_loop.epoch_loop._results["training_step.loss"]
    assert (sums.meta.reduce_fx, sums.cumulated_batch_size.item()) == (torch.mean, 12)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_newcomer_draws_the_batch_of_the_lost_rank(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lightning = Lightning(LIGHTNING)
    fetchers, loaders = lightning.module("loops.fetchers"), lightning.module("utilities.combined_loader")
    set_epoch = lightning.find("loops.fit_loop", "_set_sampler_epoch")

    def data() -> tuple[TrainingData, Randomness]:
        fit, randomness = trainer().fit_loop, Randomness()
        combined = loaders.CombinedLoader(DataLoader(range(22), batch_size=4, shuffle=True, num_workers=workers), "max_size_cycle")  # type: ignore[arg-type]
        fit._combined_loader, fit._data_fetcher = combined, fetchers._PrefetchDataFetcher()
        fit._data_fetcher.setup(combined)
        found = TrainingData(fit, set_epoch, randomness)
        stock = fetchers._PrefetchDataFetcher.__iter__
        monkeypatch.setattr(fetchers._PrefetchDataFetcher, "__iter__", lambda fetcher: found.opened(stock, fetcher))
        iter(fit._data_fetcher)
        found.begin()
        return found, randomness

    torch.manual_seed(3)
    rank, streams = data()
    drawn = []
    for _ in range(9):  # into the second epoch
        torch.rand(2)  # of the training
        at = encode(rank.position()), encode(streams.capture())
        drawn.append((*at, rank.draw()))
    for position, captured, item in drawn:
        torch.manual_seed(4)
        newcomer, randomness = data()
        newcomer.go_to(decode(position))
        randomness.restore(decode(captured))
        again = newcomer.draw()
        assert item is not None and again is not None
        assert (again[0].tolist(), again[1:]) == (item[0].tolist(), item[1:])
