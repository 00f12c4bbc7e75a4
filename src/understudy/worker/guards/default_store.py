"""Refuses a script that uses the store in which torch's default group has met.

That store is one generation's (`transport.rendezvous`): after a loss all ranks meet in another one, which has nothing of what the
script has put into the last one, and a newcomer, which sets up alone, would wait for a key that is never set. torch's own use of it, to
make groups, is handled where that happens.

Known limits: a script that finds the store in other tables of torch. A store that a script has made itself is not touched.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from torch.distributed import distributed_c10d

from understudy.messages import script
from understudy.worker import patches
from understudy.worker.errors import UsageError
from understudy.worker.script_files import is_of_script

_CALLER = 2  # frames above the replacement of torch's function: that of the patch, and that of the caller


def refuse() -> None:
    """Refuse it from now on. Called before the script runs, which may import the function by its name."""
    patches.wrap(distributed_c10d, "_get_default_store", _get, "scripts do not get a store that a loss takes away")


def _get(stock: Callable[[], Any]) -> Any:
    frame = sys._getframe(_CALLER)
    if str(frame.f_globals.get("__name__", "")).partition(".")[0] != "torch" and is_of_script(frame.f_code.co_filename):
        raise UsageError(script.DEFAULT_STORE(where=f"{frame.f_code.co_filename}:{frame.f_lineno}"))
    return stock()
