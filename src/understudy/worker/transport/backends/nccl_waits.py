"""Counts the collectives in which this process's device waits for its peers, by torch's flight recorder.

With NCCL the host waits for the device and the device's kernels wait for the peers, so nothing that the kernel knows of the threads
distinguishes a hung rank from those that wait for it. The recorder knows of each collective whether the device has begun it. One that
has begun and has not ended waits for a peer. One that was issued and has not begun waits for this rank's own computation.

torch notes the begin only with TORCH_NCCL_ENABLE_TIMING=1, and keeps records only if TORCH_FR_BUFFER_SIZE is above 0, which is its
default. Without the begin, a rank with collectives under way may be either, so its waits are not known.

To read the recorder queries the device's events, and a query from any thread spoils a CUDA graph that another thread captures. So it is
read only after `STILL` seconds without progress; no capture takes that long.

Known limit: the communicator `nccl2` keeps no records.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from torch._C import _distributed_c10d

from understudy.common.page_view import UNKNOWN

STILL = 30.0  # seconds without progress
RECORDER = "_dump_nccl_trace_json"  # only in torch that has NCCL


def count(since: int, read: Callable[[], bytes] | None = None) -> int:
    """Return the number of collectives that the device has begun and not ended; `UNKNOWN` if the recorder does not show that.

    `since`: unix time in nanoseconds; what was issued before it belongs to communicators that were aborted.
    """
    read = read or getattr(_distributed_c10d, RECORDER, None)
    if read is None:
        return UNKNOWN
    try:
        entries = json.loads(read())["entries"]
        timed = any(_begun(entry) for entry in entries)
        present = [entry for entry in entries if entry["time_created_ns"] >= since and not _over(entry)]
        waits = sum(map(_begun, present))
    except (ValueError, LookupError, TypeError):  # not as torch writes it
        return UNKNOWN
    if not entries or (present and not timed):
        return UNKNOWN
    return waits


def _begun(entry: dict[str, Any]) -> bool:
    return bool(entry["state"] == "started" or entry["time_discovered_started_ns"])


def _over(entry: dict[str, Any]) -> bool:
    return bool(entry["retired"] or entry["state"] == "completed")
