"""Digests of what goes into collectives on the host: which elements they see."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some

from understudy.worker.verification import samples
from understudy.worker.verification.device_samples import STRIDE
from understudy.worker.verification.samples import sampled


@given(some.integers(0, 2**31), some.integers(0, STRIDE - 1))
def test_a_sample_begins_at_its_offset(seed: int, offset: int) -> None:
    torch.manual_seed(seed)
    tensor = torch.randn(3000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(samples, "WHOLE", 4000)
        before = sampled(tensor, offset)
        place = int(torch.randint(0, 3000, ()))
        tensor[place] += 1
        assert (sampled(tensor, offset) != before) == (place % STRIDE == offset)


def test_rows_whose_features_lie_at_multiples_of_64_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "WHOLE", 1)
    one, other = torch.randn(200, 1024), torch.randn(200, 1024)
    for tensor in (one, other):
        tensor[:, ::64] = 0
    assert sampled(one, 0) != sampled(other, 0)


@pytest.mark.parametrize("tensor", [torch.eye(3).to_sparse(), torch.ones(3, dtype=torch.complex64).conj()])
def test_a_tensor_that_is_more_than_its_bytes_is_not_read(tensor: torch.Tensor) -> None:
    assert not samples.readable(tensor)
    assert samples.readable(torch.eye(3))
