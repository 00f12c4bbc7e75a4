"""Report a script that makes its own default process group: no rank of it is protected.

A launcher's script that calls `torch.distributed.init_process_group` runs under `understudy run` as under torchrun. Its user should know
that before the first loss. Where the call comes from a trainer with an integration, the job makes the group instead.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch.distributed
from torch.distributed import distributed_c10d

from understudy.worker import patches
from understudy.worker.patches import Patch

_CALLER = 2  # frames above `_make`: the patch, and the call of init_process_group
_patches: list[Patch] = []


def watch(report: Callable[[str], None], take_over: Callable[[FrameType, Any], bool] = lambda frame, backend: False) -> None:
    """Call `report` with the place of the first call of `init_process_group`, if there is one before `expect`.

    `take_over` is called first, with the frame of that call and the backend. If it returns True, it has made the group.
    """

    def make(stock: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        expect()
        frame = sys._getframe(_CALLER)
        if take_over(frame, args[0] if args else kwargs.get("backend")):
            return None
        report(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        return stock(*args, **kwargs)

    for module in (torch.distributed, distributed_c10d):  # each has the name
        _patches.append(patches.wrap(module, "init_process_group", make, "a script that makes its own process group is not protected"))


def expect() -> None:
    """Report nothing from now on."""
    while _patches:
        _patches.pop().remove()
