"""Collectives of one step, recorded on a rank and replayed on its spare: with a real process group of one member."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
from tests.integration.processes import wait_until
from tests.message_texts import arguments_of, has, refused
from tests.worker.steps import step_of
from torch._C._distributed_c10d import HashStore
from torch.multiprocessing.reductions import StorageWeakRef

from understudy.messages import calls
from understudy.worker.collectives.interception import Kernels
from understudy.worker.drill.step_replay import Beyond, BrokenOff, StepRecorder, StepReplayer, Unlike
from understudy.worker.encoding.messages import DrilledCollective
from understudy.worker.guards.async_work import Works


@pytest.fixture(autouse=True)
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    for client in Kernels._stack:
        client.remove()
    dist.destroy_process_group()


def recorded(step: Callable[[], object]) -> tuple[list[DrilledCollective], list[Exception]]:
    entries: list[DrilledCollective] = []
    failures: list[Exception] = []
    recorder = StepRecorder(entries.append, failures.append)
    recorder.install()
    step()
    recorder.remove()
    return entries, failures


def replayer(entries: list[DrilledCollective]) -> StepReplayer:
    made = StepReplayer(rank=3)
    for entry in entries:
        made.put(entry)
    made.complete({}, 0)
    made.install()
    return made


def step(value: float = 1.0) -> torch.Tensor:
    tensor = torch.full((4,), value)
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    tensor += 1  # what is recorded is what came out
    work.wait()
    dist.broadcast(tensor, 0)
    return tensor


def test_the_same_step_gets_what_the_rank_got() -> None:
    entries, failures = recorded(lambda: assert_equal(step(), torch.full((4,), 2.0)))
    assert failures == [] and [entry.operator for entry in entries] == ["allreduce_", "broadcast_"]
    entries[1].outputs = [torch.full((4,), 8.0)]
    replayed = replayer(entries)
    assert_equal(step(), torch.full((4,), 8.0))
    assert replayed.different == [] and replayed.missing() == "" and replayed.compared == 2


def assert_equal(one: torch.Tensor, other: torch.Tensor) -> None:
    assert torch.equal(one, other), (one, other)


def test_what_goes_in_is_compared_and_each_attempt_with_the_first() -> None:
    entries, _ = recorded(step)
    replayed = replayer(entries)
    step()
    replayed.again()
    assert not replayed.unlike_before and not replayed.unlike_itself
    step(5.0)
    assert len(replayed.different) == 1 and "allreduce number 0" in replayed.different[0]
    assert len(replayed.unlike_itself) == 1
    replayed.again()
    assert not replayed.unlike_before, "the first attempt was the same"


def test_a_first_attempt_that_is_another_one_is_remembered() -> None:
    entries, _ = recorded(step)
    replayed = replayer(entries)
    step(5.0)
    for _ in range(2):
        replayed.again()
        assert replayed.unlike_before
        step(5.0)
    assert not replayed.unlike_itself


@pytest.mark.parametrize("number", [0, 1])
def test_an_attempt_is_broken_off_at_one_collective_and_the_next_is_not(number: int) -> None:
    entries, _ = recorded(lambda: [step(), step()])
    replayed, broken = replayer(entries), list[int]()
    replayed.break_off(number, lambda: broken.append(replayed.compared))
    with pytest.raises(BrokenOff):
        step()
        step()
    with pytest.raises(BrokenOff):  # though the script has caught the first one
        dist.barrier()
    assert broken and broken[0] >= number
    replayed.again()
    step()
    step()
    assert len(broken) == 2 and not replayed.different and not replayed.missing()


def test_another_collective_one_too_many_and_one_too_few() -> None:
    entries, _ = recorded(step)
    replayed = replayer(entries)
    with refused(Unlike, calls.SPARE_ISSUES_ANOTHER, rank=3) as caught:
        dist.broadcast(torch.zeros(4), 0)
    names = arguments_of(caught.value.args[0])
    assert str(names["here"]).startswith("broadcast number 0 ") and str(names["there"]).startswith("allreduce number 0 ")
    replayed.again()
    dist.all_reduce(torch.ones(4))
    missing = replayed.missing()
    assert has(missing, calls.ONLY_RANK_ISSUES, rank=3) and "broadcast number 1 " in missing
    dist.broadcast(torch.full((4,), 2.0), 0)
    with refused(Unlike, calls.ONLY_SPARE_ISSUES, call="barrier number 2 on group '0'", rank=3):
        dist.barrier()


def test_beyond_what_was_sent_nothing_is_compared() -> None:
    entries, _ = recorded(step)
    replayed = replayer(entries[:1])
    replayed.complete({}, 1)
    with pytest.raises(Beyond):
        step()
    assert replayed.compared == 1


def test_what_cannot_be_recorded_does_what_it_would_do() -> None:
    failures: list[Exception] = []

    def give(entry: DrilledCollective) -> None:
        raise ValueError("no room")

    recorder = StepRecorder(give, failures.append)
    recorder.install()
    assert_equal(step(), torch.full((4,), 2.0))
    assert [str(error) for error in failures] == ["no room"] * 2


def test_a_work_that_is_recorded_is_no_work_that_the_script_keeps() -> None:
    reported, entries = list[str](), list[DrilledCollective]()
    works, whole = Works(reported.append), step_of(closely=True)
    recorder = StepRecorder(entries.append, lambda error: None)
    recorder.install()
    works.attempt(whole)
    step()
    works.before_vote(whole)
    works.returned(whole)
    assert not reported


def test_bytes_are_compared_like_all_else() -> None:
    entries, _ = recorded(lambda: dist.all_reduce(torch.full((4,), 7, dtype=torch.uint8)))
    replayed = replayer(entries)
    dist.all_reduce(torch.full((4,), 8, dtype=torch.uint8))
    (difference,) = replayed.different
    assert replayed.compared == 1 and has(difference, calls.INPUT_DIFFERS) and "uint8 (4,)" in difference


def gathered(thing: object) -> object:
    everyones: list[object] = [None]
    dist.all_gather_object(everyones, thing)
    return everyones[0]


def test_of_objects_that_are_moved_the_content_is_compared_and_not_its_pickle() -> None:
    text = "".join(["of the ", "step"])  # the same twice has a shorter pickle than two that are equal
    entries, failures = recorded(lambda: gathered({"losses": [1.0, 2.0], "names": [text, text]}))
    replayed = replayer(entries)
    names = [bytes([111, 102, 32, 116, 104, 101, 32]).decode() + rest for rest in ("step", "step")]
    assert gathered({"losses": [1.0, 2.0], "names": names}) == {"losses": [1.0, 2.0], "names": [text, text]}
    assert failures == [] and replayed.different == []
    replayed.again()
    gathered({"losses": [1.0, 3.0], "names": [text, text]})
    (difference,) = replayed.different
    assert has(difference, calls.OBJECT_DIFFERS) and "allgather number 1 " in difference


def test_objects_whose_content_cannot_be_read_are_not_compared() -> None:
    entries, _ = recorded(lambda: gathered(range(3)))
    replayed = replayer(entries)
    gathered(range(4))
    assert replayed.compared == 2 and replayed.different == []


def test_a_message_from_any_rank_has_its_sender() -> None:
    shape = [("float32", [2])]
    entry = DrilledCollective("0 recv_any_source_ any tag 5", 0, "recv_any_source_", "tag=5", [], [], shape, [torch.ones(2)], 2)
    replayed = replayer([entry])
    received, world = torch.zeros(2), dist.group.WORLD
    assert world is not None
    work = world.recv_anysource([received], 5)
    work.wait()
    assert work.is_completed() and work._source_rank() == 2 and replayed.compared == 1
    assert_equal(received, torch.ones(2))


def test_after_its_step_a_recorder_keeps_no_result() -> None:
    recorder = StepRecorder(lambda entry: None, lambda error: None)
    recorder.install()
    everyones, kept = torch.empty(4), torch.empty(4)
    dist.all_gather_into_tensor(everyones, torch.ones(4))
    work = dist.all_gather_into_tensor(kept, torch.ones(4), async_op=True)
    assert work is not None
    work.get_future().wait()  # without a wait for the Work itself
    storages = [StorageWeakRef(tensor.untyped_storage()) for tensor in (everyones, kept)]  # type: ignore[no-untyped-call]
    del everyones, kept
    recorder.remove()
    # Gloo's thread reports that it is done before it lets go of the tensors.
    wait_until(lambda: all(storage.expired() for storage in storages), "nothing holds a result", 30)  # type: ignore[no-untyped-call]
    assert work.wait() and work.is_completed() and work.is_success()


def test_a_result_that_is_known_there_only_after_the_vote_is_waited_for() -> None:
    (entry,), _ = recorded(lambda: dist.all_reduce(torch.ones(4)))
    made = StepReplayer(rank=3)
    made.complete({entry.lane: 1}, 0)
    made.install()

    def late() -> None:
        while not made._numbers[entry.lane]:  # it has not been asked for
            pass
        made.put(entry)

    thread = threading.Thread(target=late)
    thread.start()
    dist.all_reduce(torch.ones(4))
    thread.join()
    assert made.compared == 1 and made.different == []
    with refused(Unlike, calls.ONLY_SPARE_ISSUES, call="allreduce number 1 on group '0'", rank=3):
        dist.all_reduce(torch.ones(4))


def test_a_result_that_was_not_waited_for_there_does_not_come_after_the_step() -> None:
    made = StepReplayer(rank=3)
    made.complete({"0": 1}, 0)
    made.install()
    made.close("")
    with refused(Unlike, calls.ONLY_SPARE_ISSUES, call="allreduce number 0 on group '0'", rank=3):
        dist.all_reduce(torch.ones(4))
