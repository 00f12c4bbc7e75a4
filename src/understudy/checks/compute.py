"""Do work with a known digest on each CPU that this process may use, to find a CPU that computes wrongly by its number.

The work gives the same bits on every machine and with every numpy, so its digest is a constant. Unsigned integers wrap. A product of
integer matrices is exact in whatever order it is summed, and numpy does it without BLAS. Floating point operations are only those that IEEE
754 rounds correctly: sum, product, quotient and square root, element by element, each a separate ufunc, so nothing is fused; no sum over an
array, whose order is undefined, and no function of a mathematical library. All results go into integers that are only mixed by invertible
steps, so a single wrong bit stays to the end. `DIGEST` was computed by `tests/checks/test_compute.py` in plain Python, without numpy.

The time of a CPU is its processor time for the fastest pass, so that other work on a busy node does not count. Known limits: a fault that
shows only when all CPUs are hot together is not found, since they are tested one after the other; nor are faults in units that numpy does
not use. Other work on the same core (its second thread) and a mix of fast and slow cores show as slowness, so a CPU that is `SLOW` is a
note only.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median

import numpy as np
from numpy.typing import NDArray

from understudy.checks.base import Check, Figure, Result
from understudy.checks.options import Options
from understudy.messages import node_checks

SIDE = 64  # of a matrix
SIZE = SIDE * SIDE  # numbers in an array
STEPS = 24
DIGEST = "a69add7d8ab2f529730cbe999c9cc1ee05756848f7a75443388a6942cf08b3d2"
SLOW, MUCH_TOO_SLOW = 1.5, 5.0  # times the median of the other CPUs: noted, failed
FIRST_NUMBER, MULTIPLIER = 0x9E3779B97F4A7C15, 0xD1342543DE82EF95  # the second is odd, so multiplying by it can be undone

Numbers = NDArray[np.uint64]


def work() -> str:
    """Do the work and return the SHA-256 of its result, in hexadecimal digits. Takes some milliseconds."""
    x: Numbers = (np.arange(1, SIZE + 1, dtype=np.uint64) * np.uint64(FIRST_NUMBER)).astype(np.uint64)
    f: NDArray[np.float64] = np.ones(SIZE, np.float64)
    g: NDArray[np.float32] = np.ones(SIZE, np.float32)
    for _ in range(STEPS):
        x ^= x << np.uint64(13)
        x ^= x >> np.uint64(7)
        x ^= x << np.uint64(17)
        u = 1.0 + (x >> np.uint64(11)).astype(np.float64) * 2.0**-53  # exact, from 1 up to 2
        v = np.float32(1.0) + (x >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
        f = np.sqrt(f * u + f / u)
        g = np.sqrt(g * v + g / v)
        y = np.roll(x, 1)
        x ^= f.view(np.uint64)
        x += g.view(np.uint32).astype(np.uint64)
        x += y // (y >> np.uint64(32) | np.uint64(1))
        product = y.reshape(SIDE, SIDE) @ y.reshape(SIDE, SIDE).T
        x ^= product.reshape(SIZE)
        x *= np.uint64(MULTIPLIER)
    return hashlib.sha256(x.astype("<u8").tobytes()).hexdigest()


class Compute(Check):
    name = "compute"

    def __init__(self, options: Options, token: str = "", work: Callable[[], str] = work) -> None:
        super().__init__(options, token)
        self._work = work
        self.limit = 60.0 + 1.0 * options.compute_passes * len(os.sched_getaffinity(0))

    def run(self) -> Result:
        """Run the check. Moves this thread from CPU to CPU."""
        wrong: dict[int, set[str]] = {}  # the wrong digests of each CPU
        times: dict[int, float] = {}
        notes = list[str]()
        before = os.sched_getaffinity(0)
        try:
            for cpu in sorted(before):
                try:
                    os.sched_setaffinity(0, {cpu})
                except OSError as error:  # removed meanwhile, by a control group or physically
                    notes.append(node_checks.CPU_LEFT_OUT(cpu=cpu, reason=error.strerror))
                    continue
                found, times[cpu] = self._passes()
                if found:
                    wrong[cpu] = found
        finally:
            os.sched_setaffinity(0, before)
        return self._judged(wrong, times, notes)

    def _judged(self, wrong: Mapping[int, set[str]], times: Mapping[int, float], notes: Sequence[str]) -> Result:
        failures, slow = _failures(wrong, len(times)), dict[bool, list[str]]({True: [], False: []})
        for cpu, ratio in compared(times).items():
            slow[ratio > MUCH_TOO_SLOW].append(node_checks.CPU_SLOW(cpu=cpu, ratio=ratio))
        if not times:
            failures.append(node_checks.NO_CPU())
        figures = [Figure(name=f"CPU {cpu}", value=1000 * seconds, unit="ms") for cpu, seconds in times.items()]
        most, least = (1000 * choice(times.values(), default=0.0) for choice in (max, min))
        passed = node_checks.CPUS_COMPUTE(cpus=len(times), passes=self.options.compute_passes, least=least, most=most)
        return self.judged([*failures, *slow[True]], passed, figures, [*notes, *slow[False]])

    def _passes(self) -> tuple[set[str], float]:
        """Return the wrong digests, and the seconds of the fastest pass."""
        wrong, best = set(), float("inf")
        for _ in range(self.options.compute_passes):
            began = time.thread_time()
            found = self._work()
            best = min(best, time.thread_time() - began)
            if found != DIGEST:
                wrong.add(found)
        return wrong, best


def _failures(wrong: Mapping[int, set[str]], tried: int) -> list[str]:
    results = set().union(*wrong.values())
    if len(wrong) == tried > 1 and len(results) == 1:
        return [node_checks.ALL_CPUS_WRONG(found=results.pop()[:16], numpy=np.__version__)]
    return [node_checks.CPU_WRONG(cpu=cpu, found=min(found)[:16], wanted=DIGEST[:16]) for cpu, found in wrong.items()]


def compared(times: Mapping[int, float]) -> dict[int, float]:
    """Return the slow CPUs: how many times as long as the median of the others each one takes."""
    ratios = {cpu: own / median(t for other, t in times.items() if other != cpu) for cpu, own in times.items() if len(times) > 1}
    return {cpu: ratio for cpu, ratio in ratios.items() if ratio > SLOW}
