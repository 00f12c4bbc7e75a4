"""What is kept of a set-up's collectives: with a real process group of one member."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from tests.message_texts import refused
from torch._C._distributed_c10d import HashStore
from torch.nn.parallel import DistributedDataParallel

from understudy.messages import set_up
from understudy.worker.collectives import setup_record as record
from understudy.worker.collectives.setup_record import WHOLE, SetUpRecorder
from understudy.worker.encoding.messages import RecordedCollective, SetupRecord, unpack
from understudy.worker.errors import UsageError

LARGE = WHOLE // 4 + 1  # numbers of four bytes: more than what is kept whole in any case


@pytest.fixture
def recorder() -> Iterator[SetUpRecorder]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    made = SetUpRecorder()
    made.install()
    yield made
    made.remove()
    dist.destroy_process_group()


def noted(recorder: SetUpRecorder, *state: torch.Tensor) -> list[RecordedCollective]:
    return unpack(SetupRecord, recorder.finish(state)).collectives


def whole(entry: RecordedCollective) -> list[torch.Tensor]:
    assert entry.whole is not None
    return entry.whole


def test_large_results_are_kept_whole_unless_they_are_registered(recorder: SetUpRecorder) -> None:
    registered, view_of, other = torch.zeros(LARGE), torch.zeros(2 * LARGE), torch.ones(LARGE)
    for tensor in (registered, view_of[:LARGE], other):
        dist.broadcast(tensor, 0)
    dist.broadcast(torch.full((LARGE,), 2.0), 0)  # gone at once; its memory may be used again
    reused = torch.zeros(LARGE)
    entries = noted(recorder, registered, view_of, reused)
    assert [entry.whole is not None for entry in entries] == [False, False, True, True]
    assert [entry.digests is not None for entry in entries] == [True, True, False, False]
    assert torch.equal(whole(entries[2])[0], other)
    assert torch.equal(whole(entries[3])[0], torch.full((LARGE,), 2.0))


def test_what_a_tensor_was_then_is_kept(recorder: SetUpRecorder) -> None:
    tensor = torch.ones(LARGE)
    dist.broadcast(tensor, 0)
    tensor.zero_()
    assert torch.equal(whole(noted(recorder)[0])[0], torch.ones(LARGE))


def test_large_objects(recorder: SetUpRecorder) -> None:
    things = ["x" * (1 << 20)]
    dist.broadcast_object_list(things, 0)
    *_, entry = noted(recorder)
    assert whole(entry)[0].numel() > 1 << 20


def test_flat_buffers_of_ddp_are_followed_to_the_parameters(recorder: SetUpRecorder) -> None:
    model = DistributedDataParallel(torch.nn.Linear(512, 512))
    watched = vars(dist)["_broadcast_coalesced"]
    entries = noted(recorder, *model.parameters())
    assert vars(dist)["_broadcast_coalesced"] is not watched, "taken away again"
    assert [entry.outputs for entry in entries if entry.digests is not None] == [[("float32", [512 * 513])]]


def test_flat_buffers_of_ddp_that_is_not_registered_are_kept(recorder: SetUpRecorder) -> None:
    model = DistributedDataParallel(torch.nn.Linear(512, 512))
    entries = noted(recorder, *list(model.parameters())[:1])
    assert all(entry.whole is not None for entry in entries)


def test_memory_in_use_is_dropped_and_must_be_registered(recorder: SetUpRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "LIMIT", 3 * WHOLE)
    parameters = [torch.zeros(LARGE), torch.zeros(LARGE), torch.zeros(LARGE)]
    for tensor in parameters:
        dist.broadcast(tensor, 0)
    dist.broadcast_object_list(["x" * (2 * WHOLE)], 0)
    entries = noted(recorder, *parameters)
    assert [entry.whole is not None for entry in entries] == [False, False, False, True, True]


def test_too_much_that_is_not_registered_is_refused(recorder: SetUpRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "LIMIT", 2 * WHOLE)
    tensors = [torch.zeros(3, LARGE)]
    dist.broadcast(tensors[0], 0)
    with refused(
        UsageError,
        set_up.SET_UP_TOO_LARGE,
        number=0,
        operator="broadcast_",
        group="0",
        megabytes=12 * LARGE / 1e6,
        shapes="float32 (3, 65537)",
    ):
        recorder.finish([])


def test_small_results_beyond_the_limit_are_refused_too(recorder: SetUpRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "LIMIT", WHOLE)
    parts = [torch.zeros(WHOLE // 8), torch.zeros(WHOLE // 8), torch.zeros(WHOLE // 8)]
    for tensor in parts:
        dist.broadcast(tensor, 0)
    with refused(UsageError, set_up.SET_UP_TOO_LARGE, number=2):
        recorder.finish(parts[:2])


def test_registered_state_that_ranks_do_not_make_alike_is_kept_as_far_as_there_is_room(
    recorder: SetUpRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "LIMIT", 3 * WHOLE)
    alike, changed, too_much = torch.zeros(LARGE), torch.zeros(LARGE), torch.zeros(4 * LARGE)
    dist.broadcast(alike, 0)
    assert not recorder.moved([alike])
    dist.all_gather_into_tensor(changed, torch.ones(LARGE))
    dist.broadcast(too_much, 0)
    assert recorder.moved([alike, changed, too_much])
    assert not recorder.moved([alike, too_much]), "of what is registered"
    entries = unpack(SetupRecord, recorder.finish([alike, changed, too_much], unlike=True)).collectives
    assert [entry.whole is not None for entry in entries] == [True, True, False]
    assert torch.equal(whole(entries[1])[0], torch.ones(LARGE))
    assert recorder.given_up == 4 * LARGE * 4
