"""What an `Accelerator` holds is registered, and a newcomer gets the batches that the lost rank would have got from a prepared loader."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.state import AcceleratorState, GradientState, PartialState
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

import understudy
from understudy.messages import integrations
from understudy.worker.api.job import Job
from understudy.worker.data.loaders import LoaderSource
from understudy.worker.doctor.base import world
from understudy.worker.encoding.messages import DataPosition, pack, unpack
from understudy.worker.integrations.prepared_loaders import PreparedSource
from understudy.worker.integrations.registry import contents_of, source_of
from understudy.worker.state.streams import Randomness

COUNT, BATCH = 22, 4  # the last batch is not full


class Noisy(Dataset[torch.Tensor]):
    """Noise of the process that makes a sample."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> torch.Tensor:
        return index + torch.rand(1)


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        for index in range(COUNT):
            yield index + torch.rand(1)


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    with world():
        yield
    for shared in (AcceleratorState, GradientState, PartialState):
        shared._reset_state()


def accelerator(dispatch_batches: bool | None = False, **more: Any) -> Any:
    configuration = DataLoaderConfiguration(dispatch_batches=dispatch_batches, **more)
    return Accelerator(cpu=True, gradient_accumulation_steps=2, dataloader_config=configuration)


def prepared(made: Any, dataset: Dataset[torch.Tensor], **more: Any) -> Any:
    loader = made.prepare(DataLoader(dataset, batch_size=BATCH, **more))
    contents_of(made)
    return loader


def drawn(source: LoaderSource, randomness: Randomness, count: int) -> list[tuple[DataPosition, dict[str, bytes], torch.Tensor]]:
    """Of each iteration: where it began, with which streams, and its batch. What trains draws in between."""
    found = []
    for _ in range(count):
        here, streams = unpack(DataPosition, pack(source.position())), randomness.random()
        found.append((here, streams, source.draw(lambda: None)))
        torch.rand(3)
    return found


@pytest.mark.parametrize("seedable", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", [Noisy(), Stream()], ids=["map", "stream"])
def test_a_newcomer_draws_the_same_from_each_place(dataset: Dataset[torch.Tensor], workers: int, seedable: bool) -> None:
    torch.manual_seed(1)
    made, randomness = accelerator(use_seedable_sampler=seedable), Randomness()
    more: dict[str, Any] = {} if isinstance(dataset, Stream) else {"shuffle": True}
    loader = prepared(made, dataset, num_workers=workers, **more)
    source = source_of(loader, True, randomness)
    assert isinstance(source, PreparedSource)
    iterations = drawn(source, randomness, 9)  # into the second epoch
    last = [batch for *_, batch in iterations]
    for number, (here, streams, _) in enumerate(iterations):
        randomness.restore({name: bytes(data) for name, data in iterations[0][1].items()})
        newcomer = source_of(loader, True, randomness)
        newcomer.go_to(here)
        randomness.restore(streams)
        for batch, expected in zip([batch for *_, batch in drawn(newcomer, randomness, 3)], last[number : number + 3], strict=False):
            assert torch.equal(batch, expected), number


def test_the_batch_ahead_drawn_with_other_streams_shows() -> None:
    """Else the test above could not fail."""
    torch.manual_seed(1)
    made, randomness = accelerator(), Randomness()
    loader = prepared(made, Noisy(), shuffle=True)
    iterations = drawn(source_of(loader, False, randomness), randomness, 4)
    here, streams, batch = iterations[2]
    here.ahead = streams
    newcomer = source_of(loader, False, randomness)
    newcomer.go_to(here)
    randomness.restore(streams)
    assert not torch.equal(newcomer.draw(lambda: None), batch)


def test_what_it_holds_is_registered_and_its_progress_is_set() -> None:
    made = accelerator()
    model = nn.Linear(1, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer)
    loader = DataLoader(Noisy(), batch_size=BATCH)
    _, wrapped, loader, _ = made.prepare(model, optimizer, loader, schedule)
    job = Job(None)
    job.register(accelerator=made)
    state: Any = job._plain_state
    assert state.modules == {"accelerator.model": model} and state.optimizers == {"accelerator.optimizer": optimizer}
    assert state.values.keys() == {"accelerator.schedule", "accelerator.progress"}
    known = state.takes_care_of()
    assert all(map(known, (made, wrapped, loader, wrapped.gradient_state, loader.gradient_state)))
    progress = state.values["accelerator.progress"]
    for _ in loader:
        with made.accumulate(model):
            during = progress.state_dict()
            break
    assert during["synchronized"] is False and during["loaders in use"] == [0] and during["step"] == 1
    for _ in range(2):
        made.gradient_state.dataloader_references = [None]
        made.step, made.gradient_state.sync_gradients, loader.iteration = 0, True, 5
        assert progress.state_dict() != during
        progress.load_state_dict(during)
        assert progress.state_dict() == during and made.gradient_state.active_dataloader is loader


def test_what_could_not_be_redone_is_refused() -> None:
    made = accelerator()
    loader = made.prepare(DataLoader(Noisy(), batch_size=BATCH, shuffle=True))
    with pytest.raises(understudy.UnderstudyError, match=integrations.ACCELERATOR_NOT_REGISTERED.code):
        Job(None).batches(loader)
    contents_of(made)
    assert loader.rng_types is None and isinstance(source_of(loader, False, Randomness()), PreparedSource)
    more = accelerator()
    more.rng_types = ["torch", "generator"]
    more.prepare(DataLoader(Noisy(), batch_size=BATCH, shuffle=True))
    with pytest.raises(understudy.UnderstudyError, match=f"{integrations.RNG_TYPES.code}.* torch "):
        contents_of(more)
    dispatching = accelerator(dispatch_batches=True)
    dispatching.prepare(DataLoader(Stream(), batch_size=BATCH))
    with pytest.raises(understudy.UnderstudyError, match=f"{integrations.DISPATCHED.code}.*DataLoaderDispatcher"):
        contents_of(dispatching)
    dispatching._dataloaders, dispatching.state.distributed_type = [], type(made.distributed_type).DEEPSPEED
    with pytest.raises(understudy.UnderstudyError, match=f"{integrations.ACCELERATE_KIND.code}.* DEEPSPEED"):
        contents_of(dispatching)


@pytest.mark.parametrize("own", [False, True])
def test_other_objects_are_left_alone(own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the script has a module of its own with this name."""
    if own:
        monkeypatch.setitem(sys.modules, "accelerate", ModuleType("accelerate"))
        monkeypatch.delitem(sys.modules, "accelerate.data_loader")
    assert contents_of(nn.Linear(1, 1)) is None
    assert type(source_of(DataLoader(Noisy()), False, Randomness())) is LoaderSource
