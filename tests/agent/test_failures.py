"""Errors of many ranks on a terminal: each once, and not the one that is reported last."""

from __future__ import annotations

from tests.message_texts import has

from understudy.agent.failures import folded
from understudy.core.events import ScriptFailed
from understudy.messages import agents


def failure(rank: int, error: str = "ValueError: bad", line: int = 7) -> ScriptFailed:
    text = f'Traceback (most recent call last):\n  File "train.py", line {line}, in step\n    work()\n{error}\n'
    return ScriptFailed(f"w{rank}", rank, 3, error, text, 1)


def reported(first: ScriptFailed) -> str:
    return f"US4090: rank {first.rank} ({first.worker} on node n0) failed at step 3: {first.summary}\n{first.traceback}".rstrip()


def test_equal_errors_are_folded() -> None:
    failures = [failure(rank) for rank in (2, 0, 1, 5, 7)]
    (line,) = folded(failures, reported(failures[0]))
    assert has(line, agents.FAILED_LIKE_THAT, ranks="ranks 0-1, 5, 7")


def test_another_error_at_the_same_line_is_one_line() -> None:
    failures = [failure(0, "ValueError: 0"), failure(1, "ValueError: 1")]
    (line,) = folded(failures, reported(failures[0]))
    assert has(line, agents.FAILED_ALSO, ranks="rank 1", error="ValueError: 1")


def test_another_error_elsewhere_is_whole_and_once() -> None:
    failures = [failure(0), failure(1, "KeyError: 3", line=9), failure(2, "KeyError: 3", line=9)]
    (line,) = folded(failures, reported(failures[0]))
    assert has(line, agents.FAILED_ALSO, ranks="ranks 1-2", error=failures[1].traceback.rstrip())


def test_the_first_error_on_another_node_hides_nothing_here() -> None:
    (line,) = folded([failure(3)], reported(failure(0)))
    assert has(line, agents.FAILED_LIKE_THAT, ranks="rank 3")


def test_the_first_error_alone_needs_no_line() -> None:
    assert folded([failure(0)], reported(failure(0))) == []
    assert folded([], "US4152: all 2 ranks finished") == []
