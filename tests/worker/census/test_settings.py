"""Settings of the process are names like others: carried over, put back, and left alone where they are the launcher's."""

from __future__ import annotations

import decimal
import os
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import torch
from tests.worker.census.census_found import Found, script

from understudy.worker.census.settings import Settings
from understudy.worker.census.stores import home

__all__ = ["script"]


@pytest.fixture(autouse=True)
def put_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("LEVEL", "1")
    monkeypatch.setenv("small_level", "1")
    monkeypatch.setenv("TRITON_CACHE_DIR", "1")
    before, errors, digits = torch.get_default_dtype(), numpy.geterr(), decimal.getcontext().prec
    yield
    decimal.getcontext().prec = digits
    torch.set_default_dtype(before)
    numpy.seterr(**errors)


def _change() -> None:
    torch.set_default_dtype(torch.float64)
    numpy.seterr(over="raise")
    decimal.getcontext().prec = 5
    os.environ["LEVEL"] = os.environ["small_level"] = "2"  # noqa: SIM112
    os.environ["MASTER_PORT"] = "1"
    os.environ["TRITON_CACHE_DIR"] = "2"  # which the script does not name


def test_a_newcomer_has_the_settings_of_the_others(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_PORT", "0")
    found, newcomer, first = Found(), Found(), numpy.geterr()
    _change()
    values = found.census.encoded(None, closely=True)
    torch.set_default_dtype(torch.float32)
    numpy.seterr(**first)
    decimal.getcontext().prec = 28
    os.environ |= {"LEVEL": "1", "small_level": "1", "MASTER_PORT": "0", "TRITON_CACHE_DIR": "1"}
    for entry, data in values.items():
        newcomer.census.load(entry, data)
    assert torch.get_default_dtype() is torch.float64 and numpy.geterr()["over"] == "raise"
    assert decimal.getcontext().prec == 5
    assert os.environ["TRITON_CACHE_DIR"] == "1"
    assert os.environ["LEVEL"] == os.environ["small_level"] == "2" and os.environ["MASTER_PORT"] == "0"  # noqa: SIM112
    assert {one.root for one in found.census.listed(()) if one.name == "os.environ['LEVEL']"} == {"the process"}


def test_a_redo_finds_them_as_they_were(script: Any) -> None:
    found = Found()
    noted = found.census.note()
    _change()
    found.census.restore(noted, {})
    assert torch.get_default_dtype() is torch.float32 and numpy.geterr()["over"] != "raise" and os.environ["LEVEL"] == "1"


@pytest.mark.parametrize("name", ["os.environ['RANK']", 'os.environ["a"]', "os.environ['a", "torch", "MASTER_PORT"])
def test_another_worker_sets_nothing_else(name: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        Settings(list).put(name, "1")
    assert home(("process", "the process")) == "the process"
