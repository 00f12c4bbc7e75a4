"""Registered loaders that a script draws from by hand are known while an iterator of theirs is in use."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from understudy.worker.data.manual_iterators import by_a_loop, by_hand, watch

KINDS = [DataLoader, StatefulDataLoader]
DATA = TensorDataset(torch.arange(4))


@pytest.mark.parametrize("kind", KINDS)
def test_while_it_is_drawn_from(kind: type[DataLoader[tuple[torch.Tensor, ...]]]) -> None:
    watch()
    loader = kind(DATA)
    assert not by_hand({"mine": loader})
    iterator = iter(loader)
    next(iterator)
    assert by_hand({"other": kind(DATA), "mine": loader}) == "mine"
    assert not by_hand({})  # it is not registered


@pytest.mark.parametrize("kind", KINDS)
def test_not_once_it_is_drawn_to_its_end(kind: type[DataLoader[tuple[torch.Tensor, ...]]]) -> None:
    watch()
    loader = kind(DATA)
    for _ in loader:
        pass
    assert not by_hand({"mine": loader})


@pytest.mark.parametrize("kind", KINDS)
def test_not_where_a_loop_of_ours_draws(kind: type[DataLoader[tuple[torch.Tensor, ...]]]) -> None:
    watch()
    loader = kind(DATA)
    with by_a_loop():
        iterator = iter(loader)
    next(iterator)
    assert not by_hand({"mine": loader})
