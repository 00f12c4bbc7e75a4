"""Rows of tests that are left to `make whole`, in folders whose other tests belong to `make test`."""

from __future__ import annotations

from typing import Any

import pytest


def whole(*rows: Any) -> list[Any]:
    """For `pytest.mark.parametrize`. A row with several parameters is a tuple."""
    return [pytest.param(*(row if isinstance(row, tuple) else (row,)), marks=pytest.mark.whole) for row in rows]
