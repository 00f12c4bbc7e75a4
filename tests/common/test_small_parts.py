"""Small parts that several rooms share: waiting, counting, lines on a stream, cleaned texts."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from understudy.common.backoff import Backoff
from understudy.common.restarts import Restarts
from understudy.core.model import JobSpec, Timeouts
from understudy.links.framing import LineReader
from understudy.links.submission import Submission, shared
from understudy.links.supervision import Ending, Notice, Stop, Unled, decode


def test_waiting_longer_each_time_and_from_the_beginning_after_a_success() -> None:
    backoff = Backoff(0.5, 3.0)
    assert [backoff.delay() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    backoff.reset()
    assert [backoff.delay(), backoff.delay()] == [0.5, 1.0]


def test_restarts_are_counted_within_a_window() -> None:
    restarts = Restarts(most=2, seconds=10.0)
    assert [restarts.take(now) for now in (0.0, 9.0, 9.5)] == [True, True, False]
    assert restarts.exceeded == "3 times within 10 s"
    assert restarts.take(10.0), "the first one is long ago, and a no does not count"
    assert not restarts.take(10.5)


@given(st.lists(st.binary(max_size=9).map(lambda line: line.replace(b"\n", b"")), max_size=6), st.data())
def test_lines_come_out_whole_however_they_were_cut(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    reader = LineReader()
    assert [line for piece in pieces for line in reader.feed(piece)] == [line for line in lines if line]


def test_a_line_that_is_too_long_is_skipped_and_reported_once() -> None:
    reader = LineReader(limit=4)
    assert list(reader.feed(b"ab\nabcdef")) == [b"ab", None]
    assert list(reader.feed(b"ghijkl")) == []
    assert list(reader.feed(b"m\nab\n")) == [b"ab"]


def test_the_messages_between_command_line_and_agent() -> None:
    stop, ending = Stop(15, 143, "enough"), Ending(0, "all 2 ranks finished", True)
    assert json.loads(stop.encode()) == {"stop": {"signal": 15, "exit_code": 143, "reason": "enough"}}
    assert json.loads(ending.encode()) == {"ending": {"exit_code": 0, "message": "all 2 ranks finished", "told": True}}
    assert json.loads(Notice(10).encode()) == {"notice": {"signal": 10}}
    assert decode(Notice(10).encode()) == Notice(10)
    assert decode(Unled(8).encode()) == Unled(8)
    assert (decode(stop.encode()), Ending.decode(ending.encode())) == (stop, ending)


def test_a_submission_has_every_setting_of_a_job() -> None:
    spec = JobSpec("job", 6, 2, nodes=3, spares=2, replenish=False, max_restarts=1, prepared=1)
    submission = Submission(name="job", program=["train.py"], folder="/", timeouts=Timeouts(), **shared(spec))
    assert submission.spec() == spec


def test_settings_that_a_submission_leaves_out() -> None:
    """Its name, what follows from the rest, and what users may not choose. A new field of `JobSpec` belongs here or into `Submission`."""
    unsaid = {"job", "world_size", "max_losses_per_transaction", "admission", "home_after"}  # the last two: set by its policy
    unsaid |= {"floating", "spare_nodes", "replaces_nodes", "bounded_places"}  # a service has the nodes that it has
    assert unsaid | shared(JobSpec("job", 1, 1)).keys() == set(JobSpec.__dataclass_fields__)
