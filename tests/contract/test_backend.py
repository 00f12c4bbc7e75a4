"""Our backends keep what a `Backend` promises; one of another package, too: tests/project/test_extending.py."""

from __future__ import annotations

import pytest

from tests.contract.backend import KINDS, Kind, broken_promises


@pytest.mark.gate
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_ours(kind: Kind) -> None:
    if reason := kind.why_not():
        pytest.skip(reason)
    assert broken_promises(kind) == []
