"""All state compared among all ranks, by digests: who is whose replica, and whether it still is after a recovery."""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy.core.coverage import refine
from understudy.worker.codec import decode, encode
from understudy.worker.errors import UnderstudyError
from understudy.worker.reports import coverage

if TYPE_CHECKING:
    from understudy.worker.runtime import Runtime


class Comparison:
    """Before the first transaction, before those with a power of two as number, and one transaction after a recovery."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._last = 0  # the transaction before which states were compared last
        self._proof = -1  # the transaction before which a recovery is proven

    def due(self) -> bool:
        number = self._runtime.transaction
        regular = number & (number - 1) == 0 or number == self._proof
        return number > 0 and regular and self._last < number

    def recovered(self) -> None:
        """The present state has just been compared with the donors'; what is computed from it will be compared next."""
        number = self._runtime.transaction
        self._last, self._proof = max(number, 0), number + 1

    def run(self) -> None:
        """One comparison, on all ranks together: refines who is whose replica. Raises `RuntimeError` on a failure of a peer."""
        runtime = self._runtime
        local, number = runtime.local, runtime.transaction
        assert runtime.channel is not None
        self._last = max(number, 0)  # one attempt: after a failure all ranks go on with the same knowledge
        digests = runtime.state.digests(runtime.state.all_tensors())
        tables = [decode(data) for data in runtime.channel.gather(encode(digests))]
        before = local.replicas
        local.replicas = refine(before, tables)
        local.comparisons += 1
        parted = before.parted(local.replicas) if before is not None and local.comparisons > 2 else []
        parted = [entry for entry in parted if _is_training_state(entry)]
        if parted and number == self._proof:
            raise UnderstudyError(
                f"rank {runtime.rank}: after the recovery, {parted[0]} (of {len(parted)}) is no longer the same on ranks that shared it. "
                "The script computes with something that a newcomer does not get: register it (an LR schedule, an average of weights, ...)"
            )
        if parted:
            runtime.notice(
                f"coverage: {parted[0]} (one of {len(parted)}) has become different on ranks that shared it: they no longer replace each "
                "other in it"
            )
        if local.comparisons <= 2:
            text, covered = coverage(local.replicas, runtime.state, runtime.channel.places)
            if local.comparisons == 2 or not covered:  # at the first one, moments and what was freshly zeroed are not known yet
                runtime.notice(text, everyone=False)


def _is_training_state(entry: str) -> bool:
    """Parameters, moments, hyper-parameters: what replicas keep equal, other than gradients, buffers and the user's own values."""
    return not entry.endswith("/gradient") and ("/parameter/" in entry or "/state/" in entry or entry.endswith("/settings"))
