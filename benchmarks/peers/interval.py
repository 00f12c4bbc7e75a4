"""Compute how many steps to train between two checkpoints: the optimum for a rate of faults.

J. W. Young, "A first order approximation to the optimum checkpoint interval", Communications of the ACM 17 (9), 1974: sqrt(2 C M), where a
checkpoint costs C and faults come every M on average. J. T. Daly, "A higher order estimate of the optimum checkpoint interval for
restart dumps", Future Generation Computer Systems 22 (3), 2006, equation 37: for C < 2 M

    sqrt(2 C M) (1 + 1/3 sqrt(C / (2 M)) + 1/9 (C / (2 M))) - C

and M otherwise. The time is that between the end of one checkpoint and the beginning of the next.
"""

from __future__ import annotations

import math


def young(cost: float, between_faults: float) -> float:
    """Return the seconds of training between two checkpoints, first order. `cost`: seconds that one adds to the training."""
    return math.sqrt(2 * cost * between_faults)


def daly(cost: float, between_faults: float) -> float:
    """Return the seconds of training between two checkpoints, higher order."""
    if cost < 0 or between_faults <= 0:
        raise ValueError(
            f"a checkpoint that costs {cost} s and a fault every {between_faults} s: the first cannot be negative, the second not 0"
        )
    if cost >= 2 * between_faults:
        return between_faults
    part = cost / (2 * between_faults)
    return young(cost, between_faults) * (1 + math.sqrt(part) / 3 + part / 9) - cost


def steps_between(cost: float, between_faults: float, step: float) -> int:
    """Return the whole steps of `step` seconds between two checkpoints, at least 1."""
    return max(1, round(daly(cost, between_faults) / step))
