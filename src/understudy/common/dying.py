"""Let the kernel end a process together with the one that has started it, even if that one is killed."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def dying_with(parent: int, number: signal.Signals) -> Callable[[], None]:
    """Return a function for a child between fork and exec: it gets signal `number` when the thread of `parent` that forked dies."""

    def prepare() -> None:
        # Plain calls only: other threads of the parent may have held locks at the fork.
        _libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:  # it died before the call above: no signal would ever come
            os._exit(127)

    return prepare
