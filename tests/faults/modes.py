"""Ways to be parallel: a parameter of the fault tests."""

from __future__ import annotations

import pytest

MODES = ("ddp", "hsdp", "tp")

every_mode = pytest.mark.parametrize("mode", MODES)
