"""Places that read the state before a transaction are found in the source of real functions."""

from __future__ import annotations

import copy
import linecache
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from understudy.worker.guards.loop_checks import TRANSACTION, early_argument, early_read

model, teacher = nn.Sequential(nn.Linear(2, 2)), nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
found: list[str] = []
given: list[str] = []
DATA = torch.ones(1, 2)


def is_covered(thing: Any) -> bool:
    return thing is optimizer or any(thing is part for part in model.modules())


class Job:
    first_run, newcomer = True, False

    def steps(self, count: int) -> Iterator[int]:
        frame = sys._getframe(1)
        found.append(early_read(frame, is_covered))
        given.append(early_argument(frame, is_covered))
        return iter(range(count))


job = Job()


def step() -> None:
    model(DATA)


def section() -> None:
    model.state_dict()


setattr(step, TRANSACTION, "step")
setattr(section, TRANSACTION, "section")


@torch.no_grad()
def evaluate(of: nn.Module, number: int = 0) -> None:
    of.eval()
    of(DATA)
    of.train()


def through_another() -> None:
    evaluate(model)


def evaluated() -> None:
    for number in job.steps(2):
        if number % 2 == 0:
            evaluate(model)  # here
        step()


def evaluated_by_another() -> None:
    for _ in job.steps(2):
        through_another()
        step()


def part_used() -> None:
    for _ in job.steps(2):
        model[0]
        first = model.forward(DATA)  # type: ignore[no-untyped-call]  # here
        step()
        print(first)


def saved() -> None:
    for _ in job.steps(2):
        with torch.no_grad():
            torch.save({"optimizer": optimizer.state_dict()}, "/dev/null")  # here
        step()


def copied() -> None:
    for _ in job.steps(2):
        copy.deepcopy(model)  # here
        step()


def between_epochs() -> None:
    for _ in range(2):
        for _ in job.steps(2):
            step()
        evaluate(number=1, of=model)  # here


def only_sometimes_arrived() -> None:
    for number in job.steps(2):
        if number == 0:
            section()
        model(DATA)  # here
        step()


def after_its_transaction() -> None:
    for number in job.steps(2):
        if number:
            section()
            model(DATA)
        else:
            section()
        model(DATA)
        step()


def ordinary() -> None:
    model(DATA)
    for _ in range(2):
        model.train()
        for _ in job.steps(2):
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] = 0.1
            teacher(DATA)
            evaluate(teacher)
            step()
            evaluate(model)
            model.state_dict()
        section()
        for _ in job.steps(2):
            step()
            evaluate(model)
    model(DATA)


class Trainer:
    def __init__(self) -> None:
        self.model = model
        self.batch = torch.ones(2)  # is not to be compared with anything
        self.train = step

    def evaluate(self) -> None:
        self.model(self.batch)  # here

    def train_by_another(self) -> None:
        self.train()


def method() -> None:
    trainer = Trainer()
    for _ in job.steps(2):
        trainer.evaluate()
        trainer.train()


def method_after_its_transaction() -> None:
    trainer = Trainer()
    for _ in job.steps(2):
        trainer.train_by_another()
        trainer.evaluate()


def transaction_is_not_found() -> None:
    trainers = [Trainer()]
    for _ in job.steps(2):
        model(DATA)
        trainers[0].train()


@pytest.mark.parametrize("script", [method, evaluated, part_used, saved, copied, between_epochs, only_sometimes_arrived])
def test_it_is_found_with_its_line(script: Callable[[], None]) -> None:
    found.clear()
    script()
    name, _, line = found[0].rpartition(":")
    text = linecache.getline(__file__, int(line))
    assert __file__ in name and name.split(" at ")[0] in text
    assert "# here" in text or text.strip() == "of(DATA)"


def test_through_functions() -> None:
    found.clear()
    evaluated_by_another()
    assert found[0].startswith("of at ")


@pytest.mark.parametrize("script", [after_its_transaction, ordinary, method_after_its_transaction, transaction_is_not_found])
def test_correct_scripts_are_not_reported(script: Callable[[], Any]) -> None:
    found.clear()
    script()
    assert set(found) == {""}


def test_without_a_source_nothing_is_found() -> None:
    found.clear()
    exec("for _ in job.steps(1):\n    model(DATA)", globals())
    assert found == [""]


def written_anew() -> None:
    for epoch in range(2):
        for _ in job.steps(2):
            step()
        with open("/dev/null", "w") as file:  # here
            file.write(f"{epoch}")


def written_anew_by_a_path() -> None:
    for number in job.steps(2):
        Path("/dev/null").write_text(f"{number}")  # here
        step()


def written_anew_with_a_mode() -> None:
    for _ in job.steps(2):
        Path("/dev/null").open(mode="wb").close()  # here
        step()


def appended_or_first_or_in_a_section() -> None:
    with open("/dev/null", "w") as file:
        file.write("in the set-up")
    for epoch in range(2):
        if job.first_run:
            Path("/dev/null").write_text(f"{epoch}")
        for number in job.steps(2):
            if number == 0 and job.first_run:
                Path("/dev/null").write_text("begun")
            if not job.newcomer:
                model(DATA)
            with open("/dev/null", "a") as file:
                file.write("a line")
            Path("/dev/null").read_text()
            step()
        section()


def for_others_than_the_first() -> None:
    for number in job.steps(2):
        if job.first_run:
            print(number)
        else:
            model(DATA)  # here
        step()


@pytest.mark.parametrize("script", [written_anew, written_anew_by_a_path, written_anew_with_a_mode, for_others_than_the_first])
def test_files_that_are_written_from_scratch_are_found(script: Callable[[], None]) -> None:
    found.clear()
    script()
    assert "# here" in linecache.getline(__file__, int(found[0].rpartition(":")[2]))


def test_files_that_are_appended_to_or_written_once_are_not() -> None:
    found.clear()
    appended_or_first_or_in_a_section()
    assert set(found) == {""}


def save(state: object) -> None:
    pass


setattr(save, TRANSACTION, "section")


def norm(of: nn.Module) -> float:
    return float(of(DATA).norm())  # here


def given_after_the_step() -> None:
    for _ in job.steps(2):
        step()
        save(model.state_dict())  # here


def given_by_name_in_the_loop_around() -> None:
    for _ in range(2):
        for _ in job.steps(2):
            step()
        save(state={"model": model.state_dict()})  # here


def given_by_a_function() -> None:
    for _ in job.steps(2):
        if not job.newcomer:
            save(norm(model))
        step()


def given_as_they_are() -> None:
    save(model.state_dict())
    for number in job.steps(2):
        save({"model": model, "number": number, "other": teacher(DATA)})
        step()


@pytest.mark.parametrize("script", [given_after_the_step, given_by_name_in_the_loop_around, given_by_a_function])
def test_arguments_of_a_transaction_that_are_computed_outside_of_it_are_found(script: Callable[[], None]) -> None:
    given.clear()
    script()
    assert "# here" in linecache.getline(__file__, int(given[0].rpartition(":")[2]))


def test_arguments_that_are_handed_over_as_they_are_are_not() -> None:
    given.clear()
    given_as_they_are()
    assert set(given) == {""}
