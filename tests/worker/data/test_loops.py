"""The iterator that a script gets for a loop of the job."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from understudy.worker.data.loops import JobLoop


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(3))


@pytest.mark.parametrize(
    ("of", "length"), [(7, 7), (0, 0), (-1, 0), ([1, 2], 2), (DataLoader(TensorDataset(torch.zeros(10)), batch_size=4), 3)]
)
def test_a_bar_of_progress_can_ask_for_its_length(of: Any, length: int) -> None:
    loop = JobLoop(iter("abc"), of)
    assert next(loop) == "a" and list(loop) == ["b", "c"]
    assert len(loop) == length and loop


@pytest.mark.parametrize("of", [None, Stream(), DataLoader(Stream())])
def test_a_loop_of_unknown_length_reports_it_and_runs(of: Any) -> None:
    loop = JobLoop(iter("abc"), of)
    with pytest.raises(TypeError, match="has no len"):
        len(loop)
    assert loop and list(loop) == ["a", "b", "c"]
