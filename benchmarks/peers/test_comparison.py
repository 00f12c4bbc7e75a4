"""Test the pure parts of the comparison with other systems: intervals, the log, the figures, tables."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path

import pytest

from peers import interval, measures, tables
from peers.log import Line, Reader, Writer, parse
from peers.measures import Fault
from peers.observe import places
from peers.sizes import SIZES
from peers.systems import SYSTEMS, Training

RANKS = 2


# -- the interval between checkpoints ----------------------------------------------------------------------------------------


def test_interval_of_young() -> None:
    assert interval.young(2.0, 100.0) == 20.0


def test_interval_of_daly_is_near_that_of_young_for_rare_faults() -> None:
    assert interval.daly(1.0, 1e6) == pytest.approx(interval.young(1.0, 1e6), rel=1e-3)


def test_interval_of_daly_with_its_terms_of_higher_order() -> None:
    part = 2.0 / 200.0
    assert interval.daly(2.0, 100.0) == pytest.approx(20.0 * (1 + math.sqrt(part) / 3 + part / 9) - 2.0)


def test_a_checkpoint_that_costs_more_than_two_faults_apart() -> None:
    assert interval.daly(10.0, 5.0) == 5.0


def test_at_least_one_step_lies_between_checkpoints() -> None:
    assert interval.steps_between(0.0, 8.0, 0.5) == 1
    assert interval.steps_between(1.0, 50.0, 1.0) == 9


def test_a_negative_cost_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be negative"):
        interval.daly(-1.0, 5.0)


# -- the log -----------------------------------------------------------------------------------------------------------------


def test_log_is_read_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    reader = Reader(path)
    assert reader.refresh() == []
    one, other = Writer(path, RANKS), Writer(path, RANKS)
    one.write("commit", 0, 1)
    other.write("commit", 1, 1)
    assert [line.rank for line in reader.refresh()] == [0, 1]
    one.write("commit", 0, 2, world=1)
    assert [(line.step, line.world) for line in reader.refresh()] == [(2, 1)]
    assert reader.refresh() == []
    assert reader.committed(RANKS) == 1
    assert reader.holder(0) is not None
    assert reader.holder(2) is None


def test_half_a_line_is_left_for_later() -> None:
    whole = json.dumps(asdict(Line("commit", 0, 1, 2, 1.0, 7))).encode() + b"\n"
    assert len(parse(whole + whole[:10])) == 1
    assert parse(whole[:10]) == []


# -- the figures ----------------------------------------------------------------------------------------------------------------


def job(*steps: tuple[int, float], pids: tuple[int, int] = (10, 11), world: int = RANKS, ranks: tuple[int, ...] = (0, 1)) -> list[Line]:
    """Attempts that begin half a second before their commit at the given time."""
    lines = []
    for step, time in steps:
        lines += [Line("begin", rank, step, RANKS, time - 0.5, pids[rank]) for rank in ranks]
        lines += [Line("commit", rank, step, world, time, pids[rank]) for rank in ranks]
    return lines


def final(step: int, time: float, digest: str = "same") -> list[Line]:
    return [Line("final", rank, step, RANKS, time, 10 + rank, digest) for rank in range(RANKS)]


def test_a_run_without_faults() -> None:
    lines = job(*((step, float(step)) for step in range(1, 11))) + final(10, 10.1)
    run = measures.measure(lines, [], RANKS, 10)
    assert run.finished
    assert run.seconds == 9.0
    assert run.steady == pytest.approx(1.0)
    assert (run.dropped, run.redone, run.recoveries) == (0, 0, [])
    assert run.digests == ["same", "same"]
    assert measures.goodput(run, run, RANKS, 10) == 1.0


def test_a_restart_goes_back_to_its_checkpoint() -> None:
    lines = job((1, 1), (2, 2), (3, 3), (4, 4)) + job((3, 9), (4, 10), (5, 11), (6, 12), pids=(20, 21)) + final(6, 12.1)
    fault = Fault(1, 1, 11, 4, 4.2)
    run = measures.measure(lines, [fault], RANKS, 6)
    (recovery,) = run.recoveries
    assert recovery.full == pytest.approx(4.8)
    assert recovery.new == pytest.approx(6.8)
    assert recovery.redone == 2
    assert run.dropped == 0
    assert run.seconds == 11


def test_an_interrupted_attempt_is_redone() -> None:
    before, after = job((1, 1), (2, 2)), job((3, 4), (4, 5), pids=(10, 12))
    begun = [Line("begin", rank, 3, RANKS, 2.1, 10 + rank) for rank in range(RANKS)]
    run = measures.measure(before + begun + after, [Fault(1, 1, 11, 2, 2.3)], RANKS, 4)
    (recovery,) = run.recoveries
    assert recovery.redone == 1
    assert recovery.full == recovery.new == pytest.approx(1.7)


def test_a_system_that_goes_on_with_fewer_ranks_drops_batches() -> None:
    lines = job((1, 1), (2, 2)) + job((3, 3), (4, 4), world=1, ranks=(0,)) + job((5, 5), (6, 6), pids=(10, 12)) + final(6, 6.1)
    run = measures.measure(lines, [Fault(1, 1, 11, 2, 2.3)], RANKS, 6)
    (recovery,) = run.recoveries
    assert recovery.full == pytest.approx(2.7)
    assert run.dropped == 2
    assert recovery.redone == 0
    ideal = measures.measure(job(*((step, float(step)) for step in range(1, 7))) + final(6, 6.1), [], RANKS, 6)
    assert measures.goodput(run, ideal, RANKS, 6) == pytest.approx(10 / 12)


def test_a_commit_of_the_killed_worker_that_is_read_late_does_not_count() -> None:
    lines = [*job((1, 1)), Line("commit", 0, 2, RANKS, 2.5, 10), Line("commit", 1, 2, RANKS, 2.5, 11), *job((3, 5), pids=(10, 12))]
    full, new = measures.recovered(lines, Fault(1, 1, 11, 1, 2.0), RANKS)
    assert full == new == 5


def test_a_run_that_was_never_at_full_strength() -> None:
    lines = [*job((1, 1), (2, 2), (3, 3), world=1, ranks=(0,)), Line("final", 0, 3, RANKS, 3.1, 10, "alone")]
    run = measures.measure(lines, [Fault(1, 1, 11, 2, 2.1)], RANKS, 3)
    assert run.finished
    assert run.seconds is None
    assert run.dropped == 3
    assert math.isnan(run.steady)


def test_what_never_comes_back_is_none() -> None:
    run = measures.measure(job((1, 1), (2, 2)), [Fault(1, 0, 10, 2, 2.1)], RANKS, 6)
    assert (run.recoveries[0].full, run.recoveries[0].new, run.recoveries[0].pause) == (None, None, None)
    assert not run.finished
    assert run.seconds is None


def test_the_pause_is_the_longest_time_without_a_new_step_beyond_a_steady_one() -> None:
    steps = [(step, float(step)) for step in range(1, 9)] + [(step, step + 2.0) for step in range(9, 20)]
    lines = job(*steps[:8]) + job(*steps[8:], pids=(10, 12))
    run = measures.measure(lines, [Fault(1, 1, 11, 8, 8.3)], RANKS, 19)
    assert run.steady == pytest.approx(1.0)
    assert run.recoveries[0].pause == pytest.approx(2.0)


def test_the_cost_of_a_checkpoint_is_what_its_step_lasts_longer() -> None:
    times, now = [], 0.0
    for step in range(1, 20):
        now += 1.5 if (step - 1) % 4 == 0 and step > 1 else 1.0
        times.append((step, now))
    assert measures.checkpoint_cost(job(*times), RANKS, 4) == pytest.approx((1.0, 1.0))  # ranks paused for 1 s
    lines = [line for line in job(*times) if line.what == "commit"]
    lines += [Line("begin", rank, step + 1, RANKS, time, 10 + rank) for step, time in times for rank in range(RANKS)]
    assert measures.checkpoint_cost(lines, RANKS, 4) == pytest.approx((1.0, 0.5))


# -- tables ------------------------------------------------------------------------------------------------------------------


def test_spread() -> None:
    assert tables.spread([]) == ""
    assert tables.spread([1.0]) == "1.00"
    assert tables.spread([1.0, 3.0, 2.0]) == "2.00 (1.00-3.00)"
    assert tables.spread([0.5, 0.5], 0, 1000) == "500"


def test_table_says_what_is_missing() -> None:
    good = tables.Figures(full=[1.0, 2.0], own=[2.0, 5.0], bitwise=[True, False], dropped=[0.0, 0.0])
    bad = tables.Figures(problems=["ended with code 1: no"], unrecovered=1)
    text = tables.table({"good": good, "bad": bad}, {"absent": "it does not install"})
    assert "| good | 1.50 (1.00-2.00) | 3.5 (2.0-5.0) |" in text
    assert "| yes | 1 of 2 |" in text
    assert "- absent: it does not install" in text
    assert "- bad: a run ended with code 1: no" in text
    widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    assert widths == {len(tables.COLUMNS) + 1}


# -- sizes and places --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SIZES)
def test_models_are_as_large_as_their_names(name: str) -> None:
    assert SIZES[name].parameters() == pytest.approx(float(name.removesuffix("M")) * 1e6, rel=0.15)


def test_faults_have_the_same_places_under_every_system() -> None:
    training = Training("1M", 4, 80, 0, 1, 3, 10, 2)
    assert places(training) == places(training)
    assert [place.step for place in places(training)] == [20, 40, 60]
    assert all(0 <= place.rank < 4 and 0 <= place.part < 1 for place in places(training))


def test_every_system_starts_its_entry_with_the_same_training(tmp_path: Path) -> None:
    training = Training("1M", 4, 80, 0, 1, 3, 10, 2)
    for name, kind in SYSTEMS.items():
        command = kind(training, tmp_path / name).command()
        for option, value in (("--model", "1M"), ("--steps", "80"), ("--record", str(tmp_path / name / "log.jsonl"))):
            assert command[command.index(option) + 1] == value
