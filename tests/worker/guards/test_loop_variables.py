"""Names that only a loop sets and the script reads after it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from understudy.worker.guards.loop_variables import loop_at, names_read_after, prepare

found: list[str] = []
names: list[str] = []


def batches(count: int) -> Iterator[int]:
    read_after = names_read_after(sys._getframe(1))
    found[:], names[:] = read_after.new, read_after.names
    assert not found or read_after.where.startswith(f"{Path(__file__).name}:")
    yield from range(count)


def test_a_name_that_is_read_after_the_loop() -> None:
    for number in batches(2):
        loss = number
    assert loss == 1 and number == 1
    assert sorted(found) == ["loss", "number"]


def test_names_with_a_value_before_or_after_and_those_that_are_not_read() -> None:
    best = 0
    for number in batches(2):
        best, other, _not_read = max(best, number), number, number
    other = best
    assert other == 1
    assert found == [] and names == ["best"]


def test_a_loop_in_a_loop_and_an_iterator_around_it() -> None:
    for epoch in range(2):
        for number, _ in enumerate(batches(2)):
            loss = epoch + number
        print(loss)
    assert found == ["loss"]


def test_where_there_is_no_loop_nothing_is_found() -> None:
    iterator = batches(1)
    number = next(iterator)
    assert found == [] and number == 0


def test_a_source_that_has_changed_since_it_was_read_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text("for x in batches():\n    pass\n")
    prepare(str(file))
    assert loop_at(str(file), 1) is not None
    file.write_text("# a line more\nfor x in batches():\n    pass\n")
    assert loop_at(str(file), 1) is None and loop_at(str(file), 2) is not None
    file.unlink()
    assert loop_at(str(file), 2) is None
    prepare("-m")
