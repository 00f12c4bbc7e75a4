"""Ways to be parallel, one beside the other: `make test` goes through a diagonal of them, `make whole` through all."""

from __future__ import annotations

import pytest
from tests.diagonal import whole

MODES = ("ddp", "hsdp", "tp")


def modes(*diagonal: str, among: tuple[str, ...] = MODES) -> pytest.MarkDecorator:
    """A parameter `mode`, of which only these are not left to `make whole`."""
    return pytest.mark.parametrize("mode", [*diagonal, *whole(*(mode for mode in among if mode not in diagonal))])
