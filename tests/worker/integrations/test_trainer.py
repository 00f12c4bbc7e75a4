"""The parts of the integration of Hugging Face's Trainer that need no transformers; the conformance suite has whole trainings."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from torch.utils.data import DataLoader, Dataset

from understudy.worker.encoding.codec import decode, encode
from understudy.worker.integrations.attributes import PlainAttributes
from understudy.worker.integrations.trainer_data import EpochData
from understudy.worker.integrations.trainer_state import Callbacks, Flags, History, OwnState, Rest
from understudy.worker.state.streams import Randomness


class Numbers(Dataset[int]):
    def __len__(self) -> int:
        return 14

    def __getitem__(self, index: int) -> int:
        return index


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What accelerate keeps for the whole process."""
    for kind in (PartialState, AcceleratorState, GradientState):
        monkeypatch.setattr(kind, "_shared_state", {})


def trainer(**state: Any) -> Any:
    flags = {"epoch": 0.5, "global_step": 3, "log_history": [], "stateful_callbacks": {}, "is_world_process_zero": True, **state}
    sums = {"_tr_loss": torch.tensor(2.5), "current_flos": 10.0, "_total_loss_scalar": 1.0, "_globalstep_last_logged": 2}
    handler = SimpleNamespace(callbacks=[SimpleNamespace(patience=3, bar=object())])
    control = SimpleNamespace(should_log=False)
    return SimpleNamespace(state=SimpleNamespace(**flags), control=control, callback_handler=handler, **sums)


def moved(value: Any) -> Any:
    return decode(encode(value))


def data(accumulated: int) -> EpochData:
    loader = Accelerator(cpu=True).prepare(DataLoader(Numbers(), batch_size=2, shuffle=True))
    return EpochData(loader, Randomness(), accumulated, len(loader))


@pytest.mark.usefixtures("alone")
def test_an_update_takes_its_batches_and_the_last_one_what_is_left() -> None:
    torch.manual_seed(1)
    epoch = iter(data(3))
    assert [len(batches) for batches in epoch] == [3, 3, 1]


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("updates", [0, 1, 2])
def test_a_newcomer_takes_the_batches_of_the_same_update(updates: int) -> None:
    torch.manual_seed(1)
    lost = iter(data(3))
    for _ in range(updates):
        next(lost)
    position, streams = moved(lost.position()), torch.get_rng_state()
    wanted = torch.cat(next(lost))
    torch.manual_seed(1)
    newcomer = iter(data(3))
    newcomer.go_to(position)
    torch.set_rng_state(streams)
    assert torch.equal(torch.cat(next(newcomer)), wanted)


def test_flags_are_those_of_all_ranks_and_sums_are_of_one() -> None:
    lost, newcomer = trainer(global_step=7, best_metric=0.25), trainer(is_world_process_zero=False)
    lost.control.should_log = True
    lost_flags, flags = Flags(lost), Flags(newcomer)
    lost_flags.rate = 1e-3
    flags.load_state_dict(moved(lost_flags.state_dict()))
    assert (newcomer.state.global_step, newcomer.state.best_metric, newcomer.control.should_log, flags.rate) == (7, 0.25, True, 1e-3)
    assert newcomer.state.is_world_process_zero is False
    lost._tr_loss = torch.tensor(9.0)
    OwnState(newcomer).load_state_dict(moved(OwnState(lost).state_dict()))
    assert newcomer._tr_loss == 9.0


def test_durations_are_not_compared_and_stay_where_they_are() -> None:
    first, again = ([{"loss": 0.5, "step": 2}, {"eval_loss": 0.25, "eval_runtime": seconds}] for seconds in (1.0, 2.0))
    survivor = trainer(log_history=first)
    history, redone = History(survivor), History(trainer(log_history=again))
    assert history.state_dict() == redone.state_dict()
    survivor.state.log_history.append({"loss": 0.125, "step": 4})
    assert len(decode(history.state_dict()["encoded"])) == 3
    history.load_state_dict(moved(redone.state_dict()))
    assert survivor.state.log_history == first[:2]
    newcomer = trainer()
    History(newcomer).load_state_dict(moved(redone.state_dict()))
    assert newcomer.state.log_history == [{"loss": 0.5, "step": 2}, {"eval_loss": 0.25}]


def test_plain_attributes_of_callbacks_are_set() -> None:
    lost, newcomer = trainer(), trainer()
    lost.callback_handler.callbacks[0].patience = 1
    Callbacks(newcomer).load_state_dict(moved(Callbacks(lost).state_dict()))
    assert newcomer.callback_handler.callbacks[0].patience == 1
    assert newcomer.callback_handler.callbacks[0].bar is not lost.callback_handler.callbacks[0].bar


def test_metrics_that_a_subclass_collects_in_a_step_are_restored() -> None:
    """The containers stay the same objects, and may make items of their own."""
    thing = SimpleNamespace(metrics={"train": defaultdict(list)}, seen=0, train_dataset=[1], loader=object())
    rest, metrics = Rest(thing, ["train_dataset"]), thing.metrics
    thing.metrics["train"]["entropy"].append(0.5)
    before = moved(rest.state_dict())
    thing.metrics["train"]["entropy"].append(0.25)
    thing.seen = 7
    thing.train_dataset = [2]
    rest.load_state_dict(before)
    assert thing.metrics == {"train": {"entropy": [0.5]}}
    assert (thing.seen, thing.train_dataset) == (0, [2])
    assert thing.metrics is metrics
    assert thing.metrics["train"]["another"] == []


def test_an_attribute_that_is_gone_is_removed() -> None:
    thing = SimpleNamespace(kept=1, gone=2, other=object())
    PlainAttributes(thing, without=["kept"]).load_state_dict(PlainAttributes(SimpleNamespace(new=[3])).state_dict())
    assert vars(thing).keys() == {"kept", "other", "new"}
