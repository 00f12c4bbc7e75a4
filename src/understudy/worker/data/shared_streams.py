"""Finds the random streams from which both a loader and the training draw.

A newcomer runs only the loader's code of an epoch, so that such a stream is another one there for every batch but the last. That harms
only a loader whose batches depend on its draws for earlier ones, which cannot be seen from outside.
"""

from __future__ import annotations

from understudy.worker.encoding.messages import Streams

LOOKS = 8  # batches without a draw after which a loader counts as one that draws nothing


class SharedStreams:
    def __init__(self) -> None:
        self._looks = LOOKS
        self._after: Streams | None = None  # as of the end of the last draw
        self._by_loader: set[str] = set()
        self._by_training: set[str] = set()

    @property
    def may_be(self) -> bool:
        """Return whether more draws should be checked."""
        return self._looks > 0

    def drawn(self, before: Streams, after: Streams, index: int) -> list[str]:
        """Note that a batch was drawn, the `index`-th one of its epoch: the streams were `before` it, then `after`. Returns
        those that are shared, once. The first draw of an epoch is the same on a newcomer, so it does not count.
        """
        if index > 1:
            self._by_loader |= _moved(before, after)
            self._by_training |= _moved(self._after, before) if self._after is not None else set()
            self._looks -= not self._by_loader
        self._after = after
        shared = sorted(self._by_loader & self._by_training)
        self._looks = 0 if shared else self._looks
        return shared


def _moved(before: Streams, after: Streams) -> set[str]:
    return set() if before is after else {name for name, data in after.items() if name in before and before[name] != data}
