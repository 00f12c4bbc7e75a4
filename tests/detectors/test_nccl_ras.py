"""Reports of NCCL's RAS about hung and lagging ranks, with answers that NCCL has given, and others in the form of its documentation."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.message_texts import has

from understudy.detectors import nccl_ras
from understudy.detectors.base import Evidence, Severity, Subject
from understudy.detectors.nccl_ras import HOLDS, MOST, STILL, NcclRas, ask, parse
from understudy.messages import nccl_evidence

HERE, ELSEWHERE = "172.16.64.245", "172.16.64.246"
ANSWERS = Path(__file__).parents[1] / "recorded"  # of NCCL 2.28.9, with two and three ranks on one GPU
# The documentation of NCCL 2.29 shows this one, of a job whose second rank does not answer (there with considered_dead false).
RECORDED = """\
OK
{
  "nccl_version": "2.29.1",
  "cuda_runtime_version": 13000,
  "cuda_driver_version": 13000,
  "timestamp": "2025-12-19 13:06:53",
  "communicators_count": 1,
  "communicators": [
    {
      "hash": "0xae94423cfbb2ef4a",
      "secondary_hash": "0xb7e7187447156001:0xb8242ed28a71381e",
      "size": 2,
      "ranks_count": 1,
      "missing_ranks_count": 1,
      "ranks": [
        {
          "rank": 0,
          "host": "172.16.64.245",
          "pid": 1524344,
          "cuda_dev": 0,
          "nvml_dev": 0,
          "status": {
            "init_state": 0,
            "async_error": 0,
            "finalize_called": false,
            "destroy_flag": false,
            "abort_flag": false
          },
          "collective_counts": {
            "Broadcast": 0,
            "Reduce": 0,
            "AllGather": 0,
            "ReduceScatter": 0,
            "AllReduce": 0
          }
        }
      ],
      "missing_ranks": [
        {
          "rank": 1,
          "host": "172.16.64.245",
          "pid": 1524345,
          "cuda_dev": 1,
          "nvml_dev": 1,
          "status": {
            "unresponsive": true,
            "considered_dead": false
          }
        }
      ]
    }
  ],
  "ras": {
    "collection_time_sec": 0.000,
    "timeouts_count": 0
  }
}
"""


def answer(*counts: int, hosts: tuple[str, ...] = (), **more: int) -> str:
    """Of one communicator whose ranks have started so many all-reduces."""
    ranks = [
        {
            "rank": rank,
            "host": hosts[rank] if hosts else HERE,
            "pid": 100 + rank,
            "cuda_dev": 0,
            "nvml_dev": rank,
            "collective_counts": {"AllReduce": count, "Broadcast": 2, **{name: number * rank for name, number in more.items()}},
        }
        for rank, count in enumerate(counts)
    ]
    return "OK\n" + json.dumps({"communicators": [{"hash": "0xae94", "secondary_hash": "0x1", "ranks": ranks, "missing_ranks": []}]})


class Node:
    """A node with a job, whose NCCL gives the test's answers."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.answer = ""
        self.error: OSError | None = None
        self.processes: set[int] = {100, 101, 102, 1524345}
        clock, is_there = (lambda: self.now), (lambda pid: pid in self.processes)
        self.detector = NcclRas("n:1", ask=self._answered, clock=clock, here=lambda: [HERE], is_there=is_there)

    def _answered(self, address: str) -> str:
        assert address == "n:1"
        if self.error is not None:
            raise self.error
        return self.answer

    def look(self, answer: str, after: float = 10.0) -> list[Evidence]:
        self.now += after
        self.answer = answer
        return self.detector.look()


def only(found: list[Evidence]) -> Evidence:
    assert len(found) == 1, found
    assert found[0].severity is Severity.NOTE and found[0].detector == "nccl-ras" and found[0].name == ""
    return found[0]


def test_nccl_s_own_answer_is_read() -> None:
    (communicator,) = parse((ANSWERS / "nccl_ras_all.txt").read_text()).communicators
    assert [(one.rank, one.pid, one.issued) for one in communicator.ranks] == [(0, 679, 5), (1, 680, 5)]
    assert communicator.missing_ranks == []


def test_nccl_s_own_answer_leaves_out_a_comma_where_ranks_are_missing() -> None:
    text = (ANSWERS / "nccl_ras_missing.txt").read_text()
    with pytest.raises(ValueError, match="delimiter"):
        json.loads(text.removeprefix("OK"))
    (communicator,) = parse(text).communicators
    assert [(one.rank, one.status.unresponsive) for one in communicator.missing_ranks] == [(0, True), (1, False)]


def test_a_process_that_does_not_answer() -> None:
    node = Node()
    found = only(node.look(RECORDED))
    assert (found.kind, found.subject, found.part, found.until) == ("nccl-rank-unresponsive", Subject.DEVICE, "gpu1", node.now + HOLDS)
    assert has(found.detail, nccl_evidence.RAS_UNRESPONSIVE, rank=1, communicator="0xae94423cfbb2ef4a", pid=1524345)
    node.processes.clear()
    assert node.look(RECORDED) == [], "it has ended, which others see"


def test_one_of_another_node_is_reported_by_that_node() -> None:
    assert Node().look(RECORDED.replace(HERE, ELSEWHERE)) == []


def test_the_comma_that_one_version_leaves_out() -> None:
    broken = RECORDED.replace('"nvml_dev": 1,\n', '"nvml_dev": 1\n')
    assert broken != RECORDED
    with pytest.raises(ValueError, match="delimiter"):
        json.loads(broken[3:])
    assert parse(broken) == parse(RECORDED)


def test_a_rank_that_all_others_wait_for() -> None:
    node, hung = Node(), answer(7, 5, 7)
    began = node.now + 10.0
    assert node.look(hung) == []
    assert node.look(hung, after=STILL - 1.0) == [], "not for long enough"
    found = only(node.look(hung, after=1.0))
    assert (found.kind, found.subject, found.part) == ("nccl-rank-behind", Subject.DEVICE, "gpu1")
    assert (found.happened, found.until) == (began, node.now + HOLDS)
    assert has(found.detail, nccl_evidence.RAS_BEHIND, rank=1, communicator="0xae94", pid=101, issued=7, others=2, most=9, seconds=STILL)
    assert node.look(answer(8, 8, 8)) == []
    assert node.look(hung) == [], "it begins from the start"


def test_a_job_that_goes_on_has_no_rank_behind() -> None:
    node = Node()
    for step in range(20):
        assert node.look(answer(step + 2, step, step + 2), after=STILL) == []


@pytest.mark.parametrize("counts", [(7, 7, 7), (7, 5, 5), (7, 6, 5), (7, 7, 5, 5), (5,), ()])
def test_where_no_single_rank_is_behind_none_is_named(counts: tuple[int, ...]) -> None:
    node = Node()
    assert [node.look(answer(*counts), after=STILL) for _ in range(3)] == [[], [], []]


def test_sends_and_receives_are_not_compared() -> None:
    node = Node()
    assert [node.look(answer(7, 7, 7, Send=5, Recv=9), after=STILL) for _ in range(3)] == [[], [], []]
    assert [len(node.look(answer(7, 6, 7, Send=5, Recv=9), after=STILL)) for _ in range(2)] == [0, 1]


def test_a_rank_of_another_node_that_lags_is_reported_by_that_node() -> None:
    node = Node()
    hosts = HERE, ELSEWHERE, HERE
    assert [node.look(answer(7, 5, 7, hosts=hosts), after=STILL) for _ in range(3)] == [[], [], []]


def test_a_flood_is_bounded() -> None:
    one = json.loads(RECORDED[3:])
    one["communicators"] = [{**one["communicators"][0], "hash": f"0x{number:x}"} for number in range(100)]
    assert len(Node().look(json.dumps(one))) == MOST


NO_ANSWERS = ["ERROR: unknown command\n", "{", '{"communicators": 3}', '{"communicators": [{"hash": 1}]}', "{}", '{"a":' + "[" * 10**5]


@pytest.mark.parametrize("text", NO_ANSWERS, ids=range(len(NO_ANSWERS)))
def test_what_is_no_answer_is_a_note(text: str) -> None:
    found = only(Node().look(text))
    assert (found.kind, found.subject) == ("ras-not-read", Subject.NODE)
    assert has(found.detail, nccl_evidence.RAS_NOT_READ, address="n:1")


def test_no_listener_and_one_that_does_not_answer_are_no_evidence() -> None:
    node = Node()
    assert node.look("") == []
    node.error = TimeoutError()
    assert node.look(RECORDED) == []


@pytest.fixture
def server() -> Any:
    """What NCCL does: it reads two lines, answers, and closes."""
    listener = socket.create_server(("127.0.0.1", 0))
    asked: list[bytes] = []

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            data = b""
            while data.count(b"\n") < 2:
                data += connection.recv(100)
            asked.append(data)
            connection.sendall(RECORDED.encode())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"127.0.0.1:{listener.getsockname()[1]}", asked
    listener.close()
    thread.join()


def test_it_is_asked_as_its_client_does(server: tuple[str, list[bytes]]) -> None:
    address, asked = server
    assert ask(address) == RECORDED
    assert asked == [b"SET FORMAT json\nVERBOSE STATUS\n"]


def test_no_process_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    assert ask(address) == ""


def test_the_address_is_that_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def note(address: str) -> str:
        asked.append(address)
        return ""

    NcclRas(ask=note).look()
    monkeypatch.setenv(nccl_ras.ADDRESS_VARIABLE, "10.0.0.1:5")
    NcclRas(ask=note).look()
    assert asked == [nccl_ras.ADDRESS, "10.0.0.1:5"]


def test_a_node_without_gpus(tmp_path: Path) -> None:
    assert has(NcclRas.missing(tmp_path), nccl_evidence.RAS_NO_GPU)
    (tmp_path / "nvidia0").touch()
    assert NcclRas.missing(tmp_path) == ""
