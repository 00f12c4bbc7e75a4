"""Ways to be parallel, one beside the other: `make test` goes through a diagonal of them, `make whole` through all."""

from __future__ import annotations

import pytest

MODES = ("ddp", "hsdp", "tp")


def modes(*diagonal: str, among: tuple[str, ...] = MODES) -> pytest.MarkDecorator:
    """A parameter `mode`, of which only these are not left to `make whole`."""
    return pytest.mark.parametrize("mode", [mode if mode in diagonal else pytest.param(mode, marks=pytest.mark.whole) for mode in among])
