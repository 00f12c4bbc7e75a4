"""The batches of an epoch of a Hugging Face `Trainer`: as many as an update takes are one draw of the job's loop."""

from __future__ import annotations

from typing import Any

from understudy.worker.encoding.messages import DataPosition
from understudy.worker.integrations.prepared_loaders import PreparedSource
from understudy.worker.state.streams import Randomness


class EpochData:
    """Stands in for the prepared loader of an epoch, whose other attributes it has."""

    def __init__(self, loader: Any, randomness: Randomness, accumulated: int, batches: int) -> None:
        """`accumulated`: batches of an update. `batches`: of the epoch."""
        self._loader, self._randomness, self._accumulated, self._batches = loader, randomness, accumulated, batches
        self._source = PreparedSource(loader, False, randomness)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __iter__(self) -> EpochData:
        """Begin the epoch, which the trainer has set. The loader is opened by the first draw."""
        self._source = PreparedSource(self._loader, False, self._randomness)
        return self

    def __next__(self) -> list[Any]:
        return self.take()

    def take(self) -> list[Any]:
        """Return the batches of the next update. Raises `StopIteration` if there is none."""
        found = list[Any]()
        for _ in range(min(self._accumulated, self._batches - self._source.index)):
            try:
                found.append(self._source.draw(lambda: None))
            except StopIteration:
                break
        if not found:
            raise StopIteration
        return found

    def position(self) -> dict[str, Any]:
        return vars(self._source.position())

    def go_to(self, position: dict[str, Any]) -> None:
        self._source.go_to(DataPosition(**position))
