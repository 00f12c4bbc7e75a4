"""Settings of optimizers as bytes: always those of the present values."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as some

from understudy.worker.encoding.codec import encode
from understudy.worker.state.optimizers import EncodedSettings

ALIKE = some.sampled_from([0.0, -0.0, 0, 1, 1.0, True, False, None, "lr", (0.9, 0.95), (1, 2.0), (True, 2)])
CHANGING = some.lists(some.floats(allow_nan=False), max_size=2)
GROUPS = some.lists(some.dictionaries(some.sampled_from(["lr", "betas", "foreach"]), ALIKE | CHANGING), max_size=3)


@given(some.lists(some.tuples(GROUPS, some.sampled_from([[{}], [{0: {"step": 1}}], [{}, {"k": 2}]])), min_size=1, max_size=5))
def test_the_bytes_are_those_of_the_present_values(every: list[tuple[list[dict[str, Any]], list[Any]]]) -> None:
    settings = EncodedSettings()
    for groups, others in [*every, *reversed(every)]:
        assert settings.of(groups, others) == encode([groups, *others])
        for group in groups:
            if type(group.get("betas")) is list:
                group["betas"].append(0.5)  # in place
        assert settings.of(groups, others) == encode([groups, *others])
