"""Our backends, and one of another package, keep what a `Backend` promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import packages
from tests.contract.backend import KINDS, Kind, broken_promises

TWIN = """
    import torch.distributed as dist
    from understudy.worker.transport.backends.base import Backend
    from understudy.worker.transport.backends.gloo import GlooCommunicator


    class Twin(Backend):
        \"\"\"Gloo under another name, that knows a loss by its errors only.\"\"\"

        name = "twin"

        def install(self, host):
            def make(store, rank, size, timeout):
                made = GlooCommunicator(*host.world(store, rank, size), timeout)
                made.is_broken = lambda: False
                host.keep(made)
                return made

            self.make = make
            dist.Backend.register_backend("twin", lambda *arguments: make(*arguments), devices=["cpu"])

        def connect(self, store, rank, size, last, inherits):
            return self.make(store, rank, size, last.options._timeout)

        def classify_error(self, error):
            return type(error) is RuntimeError
"""


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_ours(kind: Kind) -> None:
    if reason := kind.why_not():
        pytest.skip(reason)
    assert broken_promises(kind) == []


def test_one_that_another_package_has_added(tmp_path: Path) -> None:
    packages.install(tmp_path, "twin_backend", "understudy.backends", "twin_backend:Twin", TWIN)
    assert broken_promises(Kind("twin", shows=False), path=str(tmp_path)) == []
