"""For how many collectives the device waits, by torch's flight recorder: with records that NCCL has left on a GPU, with others in the
same form, and with Gloo's own."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tests.integration.processes import wait_until
from torch._C import _distributed_c10d

from understudy.common.page_view import UNKNOWN
from understudy.worker.transport.backends import nccl_waits
from understudy.worker.transport.backends.gloo import Gloo
from understudy.worker.transport.backends.nccl import Nccl

RECORDED = Path(__file__).parents[2] / "recorded"
ABORTED = 1_000
BEGUN, ENDED = 5_000, 6_000


def entry(state: str, created: int = 2_000, **more: Any) -> dict[str, Any]:
    """As `FlightRecorder` in torch 2.13 writes it."""
    begun = BEGUN if state in ("started", "completed") else 0
    over = state == "completed"
    return {
        "collective_seq_id": 7, "input_dtypes": ["Float"], "input_sizes": [[4]], "is_p2p": False, "op_id": 7, "output_dtypes": ["Float"],
        "output_sizes": [[4]], "p2p_seq_id": 0, "pg_id": 0, "process_group": ["0", "default_pg"], "profiling_name": "nccl:all_reduce",
        "record_id": 6, "retired": over, "state": state, "thread_id": "1", "thread_name": "python", "time_created_ns": created,
        "time_discovered_completed_ns": ENDED if over else 0, "time_discovered_started_ns": begun, "timeout_ms": 600000, **more,
    }  # fmt: skip


def waits(*entries: dict[str, Any]) -> int:
    recorded = {"comm_lib_version": "2.28.9", "entries": entries, "pg_status": {}, "version": "2.10"}
    return nccl_waits.count(ABORTED, lambda: json.dumps(recorded).encode())


DONE = entry("completed")
NOT_TIMED = entry("completed", time_discovered_started_ns=0)


def test_records_of_nccl_distinguish_the_rank_that_hangs_from_the_one_that_waits_for_it() -> None:
    """On one H200 (torch 2.11.0, NCCL 2.28.9), of two ranks that had issued two sums each, while the device of the second one was
    busy with a long computation before them."""
    assert [nccl_waits.count(0, (RECORDED / f"nccl_recorder_{rank}.json").read_bytes) for rank in ("waits", "hangs")] == [1, 0]


def test_a_collective_that_has_begun_waits_for_peers() -> None:
    assert waits(DONE, entry("started"), entry("started"), entry("scheduled")) == 2


def test_a_rank_that_still_computes_before_its_collective_waits_for_no_rank() -> None:
    assert waits(DONE, entry("scheduled")) == 0


def test_a_rank_whose_collectives_have_ended_waits_for_no_rank() -> None:
    assert waits(DONE) == 0
    assert waits(NOT_TIMED) == 0


def test_without_the_time_of_the_begin_a_collective_under_way_is_no_evidence() -> None:
    assert waits(NOT_TIMED, entry("scheduled")) == UNKNOWN


def test_a_record_without_an_entry_is_none() -> None:
    assert waits() == UNKNOWN


def test_collectives_of_an_aborted_generation_do_not_count() -> None:
    assert waits(entry("started", created=ABORTED - 1)) == 0
    assert waits(entry("started", created=ABORTED - 1), entry("started")) == 1


@pytest.mark.parametrize("written", [b"", b"[]", b"{}", b'{"entries": [{}]}', b'{"entries": [1]}', b'{"entries": 3}', b"\xff"])
def test_fields_that_torch_does_not_write_are_no_evidence(written: bytes) -> None:
    assert nccl_waits.count(0, lambda: written) == UNKNOWN


def test_the_record_is_read_only_of_a_process_that_has_stood_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query of the device's events would spoil the capture of a CUDA graph."""
    monkeypatch.setattr(_distributed_c10d, nccl_waits.RECORDER, lambda: json.dumps({"entries": [DONE]}).encode(), raising=False)
    assert Nccl().waits() == UNKNOWN
    assert Nccl().waits(nccl_waits.STILL - 1) == UNKNOWN
    assert Nccl().waits(nccl_waits.STILL) == 0


def test_torch_without_nccl_has_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(_distributed_c10d, nccl_waits.RECORDER, raising=False)
    assert Nccl().waits(nccl_waits.STILL) == UNKNOWN
    assert Gloo().waits(nccl_waits.STILL) == Gloo().waits()


def test_torch_writes_the_records_that_are_read_here() -> None:
    """By Gloo's recorder, the one that runs here: the same code of torch writes NCCL's. Gloo never notes that a collective begins."""
    read = getattr(_distributed_c10d, "_dump_fr_trace_json")  # noqa: B009 (torch's stubs lack it)
    dist.init_process_group("gloo", store=_distributed_c10d.HashStore(), rank=0, world_size=1)
    try:
        before = time.time_ns()
        dist.all_reduce(torch.ones(4))
        written = json.loads(read())["entries"][-1]
        assert entry("scheduled").keys() == written.keys()
        assert before <= written["time_created_ns"] <= time.time_ns()
        # Its only collective is over, which Gloo's thread records after it has woken the caller.
        wait_until(lambda: nccl_waits.count(before, read) == 0, "the collective is recorded as over")
    finally:
        dist.destroy_process_group()
