"""The known work of `checks.compute`: its digest, computed again without numpy, and the report about a wrong or slow CPU."""

from __future__ import annotations

import errno
import hashlib
import math
import os
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from understudy.checks.base import Verdict
from understudy.checks.compute import DIGEST, FIRST_NUMBER, MULTIPLIER, SIDE, SIZE, STEPS, Compute, compared, work
from understudy.checks.options import Options
from understudy.messages import node_checks

ALL = (1 << 64) - 1
FEW = Options(compute_passes=2)


def single(x: float) -> float:
    """Rounded to the nearest float32. After one sum, product, quotient or root of float32 numbers in float64 that is the correct rounding
    (S. Figueroa, 1995): 53 bits are more than 2 * 24 + 2.
    """
    found: float = struct.unpack("f", struct.pack("f", x))[0]
    return found


def bits(form: str, x: float) -> int:
    found: int = struct.unpack({"d": "Q", "f": "I"}[form], struct.pack(form, x))[0]
    return found


def reference() -> str:
    x = [number * FIRST_NUMBER & ALL for number in range(1, SIZE + 1)]
    f, g = [1.0] * SIZE, [1.0] * SIZE
    for _ in range(STEPS):
        for i, number in enumerate(x):
            number ^= number << 13 & ALL
            number ^= number >> 7
            x[i] = number ^ (number << 17 & ALL)
        y = x[-1:] + x[:-1]
        rows = [y[start : start + SIDE] for start in range(0, SIZE, SIDE)]
        product = [sum(map(int.__mul__, one, other)) for one in rows for other in rows]
        for i, number in enumerate(x):
            u, v = 1.0 + (number >> 11) * 2.0**-53, single(1.0 + (number >> 40) * 2.0**-24)
            f[i] = math.sqrt(f[i] * u + f[i] / u)
            g[i] = single(math.sqrt(single(single(g[i] * v) + single(g[i] / v))))
            number = (number ^ bits("d", f[i])) + bits("f", g[i]) + y[i] // (y[i] >> 32 | 1)
            x[i] = ((number ^ product[i]) & ALL) * MULTIPLIER & ALL
    return hashlib.sha256(struct.pack(f"<{SIZE}Q", *x)).hexdigest()


def test_the_digest_is_that_of_plain_python() -> None:
    assert reference() == DIGEST


def test_this_machine_computes_it() -> None:
    assert work() == DIGEST


@pytest.mark.parametrize("name", ["sqrt", "roll"])
def test_one_wrong_bit_once_shows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the first call only, of what then goes through all the steps."""
    true, calls = getattr(np, name), list[None]()

    def wrong(array: Any, *more: Any) -> Any:
        found = true(array, *more)
        if not calls:
            found.view(f"u{found.itemsize}")[77] ^= 1
        calls.append(None)
        return found

    monkeypatch.setattr(np, name, wrong)
    assert work() != DIGEST
    assert len(calls) >= STEPS


def test_every_cpu_is_tried_out() -> None:
    before, seen = os.sched_getaffinity(0), list[set[int]]()

    def watched() -> str:
        seen.append(os.sched_getaffinity(0))
        return DIGEST

    found = Compute(FEW, work=watched).run()
    assert found.verdict is Verdict.PASSED
    assert seen == [{cpu} for cpu in sorted(before) for _ in range(2)]
    assert [figure.name for figure in found.figures] == [f"CPU {cpu}" for cpu in sorted(before)]
    assert os.sched_getaffinity(0) == before


def on(cpu: int, sometimes: Callable[[], bool] = lambda: True) -> Callable[[], str]:
    return lambda: "f" * 64 if os.sched_getaffinity(0) == {cpu} and sometimes() else DIGEST


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs a CPU in addition to the one that computes wrongly")
def test_the_cpu_that_computes_wrongly_is_named() -> None:
    broken = max(os.sched_getaffinity(0))
    found = Compute(FEW, work=on(broken)).run()
    assert found.verdict is Verdict.FAILED
    assert found.detail == node_checks.CPU_WRONG(cpu=broken, found="f" * 16, wanted=DIGEST[:16])


def test_once_is_enough() -> None:
    turns = iter([False] * 4 + [True] + [False] * 1000)
    assert Compute(Options(compute_passes=9), work=on(min(os.sched_getaffinity(0)), lambda: next(turns))).run().verdict is Verdict.FAILED


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_what_is_wrong_alike_everywhere_is_not_the_cpus() -> None:
    found = Compute(FEW, work=lambda: "a" * 64).run()
    assert found.verdict is Verdict.FAILED
    assert found.detail == node_checks.ALL_CPUS_WRONG(found="a" * 16, numpy=np.__version__)


def test_a_cpu_that_is_taken_away_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    first, move = min(os.sched_getaffinity(0)), os.sched_setaffinity

    def refuse(pid: int, cpus: set[int]) -> None:
        if cpus == {first}:
            raise OSError(22, "Invalid argument")
        move(pid, cpus)

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    found = Compute(FEW, work=lambda: DIGEST).run()
    assert node_checks.CPU_LEFT_OUT(cpu=first, reason=os.strerror(errno.EINVAL)) in found.notes
    assert f"CPU {first}" not in [figure.name for figure in found.figures]
    assert (found.verdict is Verdict.FAILED) == (len(os.sched_getaffinity(0)) == 1)


def test_a_slow_cpu_is_noted_and_a_much_slower_one_fails() -> None:
    assert compared({0: 1.0, 1: 1.2, 2: 0.9}) == {}
    assert compared({0: 1.0, 1: 2.0, 2: 1.0, 3: 1.0}) == {1: 2.0}
    assert compared({0: 1.0}) == {}
    check = Compute(FEW)
    noted = check._judged({}, {0: 1.0, 1: 2.0, 2: 1.0}, [])
    assert (noted.verdict, noted.notes) == (Verdict.PASSED, (node_checks.CPU_SLOW(cpu=1, ratio=2.0),))
    failed = check._judged({}, {0: 1.0, 1: 6.0, 2: 1.0}, [])
    assert (failed.verdict, failed.detail, failed.notes) == (Verdict.FAILED, node_checks.CPU_SLOW(cpu=1, ratio=6.0), ())
