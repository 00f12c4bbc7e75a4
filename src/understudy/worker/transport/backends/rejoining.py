"""Joins the same communicator again with other peers: torch's `_reconfigure`, from torch 2.14 on.

torch uses *handles*: every member gives one, and all name the same list of them, in the order of ranks, under a number that this
communicator has not had. They meet in the store with which the communicator was made, so that store is a `Door`. Two things torch does
not do, and we do: to end waits for a lost peer, and to release it (`Communicator.abort` and `drain`).

It is called on the communicator inside a group and not on the group, which refuses if it has several of them (`cpu:gloo,cuda:nccl`).

How torch's way differs from what is needed here, and what is done about it:

- Groups with several backends (`cpu:gloo,cuda:nccl`) are refused. The communicator inside the group is asked instead.
- A group that is made for it is not initialised until its first `_reconfigure`. Gloo groups are made as usual, and can be reconfigured all
  the same. NCCL groups are joined while they are made.
- A handle contains the address of the store that the communicator was made with. That store is a `rendezvous.Door`, which has no address
  and opens to the store of the current generation.
- Handles must differ, and communicators that were made without peers, as on a newcomer, have the same one. Such a communicator is joined
  alone first, under a random number.
- A group reports the size and rank of its communicator, which are 1 and 0 during the set-up of a newcomer. Such groups have no default
  backend until they are joined, and report what they were made with.
- A wait for a peer that is lost or stopped, and a message that is half sent, are not ended by torch: see `gloo_waits` and `sockets`.
- torch closes connections one after the other, up to 10 ms each. They are shut before, so there is nothing to wait for.

Members need not use the same way: one that replaces its communicator meets others that join theirs again.
"""

from __future__ import annotations

import os
import secrets
from typing import Any

from torch._C import _distributed_c10d
from torch._C._distributed_c10d import Store

from understudy.worker.encoding.digests import digest_bytes

VARIABLE = "UNDERSTUDY_REJOIN"
_OPTIONS: Any = getattr(_distributed_c10d, "ReconfigureOptions", None)
KNOWN = _OPTIONS is not None  # to this torch


def available() -> bool:
    """Return whether this torch can, and it is not turned off (UNDERSTUDY_REJOIN=0: a new communicator for each generation)."""
    return KNOWN and os.environ.get(VARIABLE) != "0"


def rejoin(communicator: Any, store: Store, rank: int, size: int) -> None:
    """Join again. All members call it, with the same `store`, which is the one that the communicator uses; it may block for as long as one
    is missing.

    Raises what torch raises when a peer or the store is lost; the communicator is of no use then.
    """
    if communicator.size() == 1:
        _join_alone(communicator)
    store.set(f"handle/{rank}", communicator.get_reconfigure_handle())
    names = [f"handle/{other}" for other in range(size)]
    store.wait(names)
    handles = [store.get(name).decode() for name in names]
    _reconfigure(communicator, digest_bytes("\n".join(handles).encode()) >> 1, handles)


def _join_alone(communicator: Any) -> None:
    """Join a communicator that was made without peers, as rank 0 of 1, like many others: from here on no other has its handle."""
    _reconfigure(communicator, secrets.randbits(62), [communicator.get_reconfigure_handle()])


def _reconfigure(communicator: Any, number: int, handles: list[str]) -> None:
    options = _OPTIONS()
    options.uuid = number  # 63 bits
    options.handles = handles
    communicator.reconfigure(options).wait()
