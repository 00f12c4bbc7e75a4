"""The store of torch's default group: a script is refused it, torch itself gets it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.message_texts import has
from torch.distributed import distributed_c10d

from understudy.messages import script
from understudy.worker import patches
from understudy.worker.errors import UsageError
from understudy.worker.guards import default_store


def test_only_a_script_is_refused_the_default_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed_c10d, "_get_default_store", lambda: "the store")
    before = patches.installed()
    default_store.refuse()
    try:
        with pytest.raises(UsageError) as error:
            distributed_c10d._get_default_store()
        assert has(str(error.value), script.DEFAULT_STORE) and f"{Path(__file__).name}:" in str(error.value)
        call = compile("found = _get_default_store()", distributed_c10d.__file__, "exec")
        names = {"_get_default_store": distributed_c10d._get_default_store}
        exec(call, names)
        assert names["found"] == "the store"  # type: ignore[comparison-overlap]
    finally:
        for patch in [one for one in patches.installed() if one not in before]:
            patch.remove()
