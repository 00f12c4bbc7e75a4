"""A local copy of all objects of one kind: listed once, and then updated by a watch.

A watch ends at times: by the server's own limit, when its version is too old (410), or with the connection. It continues from the last
object that it received, or everything is listed again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from understudy.common.backoff import Backoff
from understudy.messages import kubernetes_api
from understudy.schedulers.base import SchedulerAway, SchedulerFailed
from understudy.schedulers.kubernetes.api import Api, Object

SECONDS = 60  # duration of a watch, after which the server ends it
FIRST = 10.0  # seconds for which callers wait for the first list
AGAIN, AGAIN_AT_MOST = 0.2, 5.0  # seconds between two attempts


class Informer:
    """The copy. A thread updates it until it is closed."""

    def __init__(self, api: Api, path: str, changed: Callable[[Object | None], None] | None = None, **selectors: str) -> None:
        """Start the thread. `changed`: called from it with the changed object, or None: everything may have changed."""
        self._api = api
        self._path = path
        self._selectors = selectors
        self._changed = changed
        self._objects: dict[tuple[str, str], Object] = {}  # by namespace and name
        self._trouble: SchedulerFailed | None = None
        self._listed = threading.Event()
        self._closed = threading.Event()
        threading.Thread(target=self._run, name=f"watch {path}", daemon=True).start()

    def objects(self) -> list[Object]:
        """Return the objects of the latest update. Raises `SchedulerFailed` while the server does not answer, or rejects the request."""
        if not self._listed.wait(FIRST) and self._trouble is None:
            raise SchedulerAway(kubernetes_api.NO_ANSWER_YET(path=self._path))
        if self._trouble is not None:
            raise self._trouble
        return list(self._objects.values())

    def close(self) -> None:
        """Let the thread end with its current watch."""
        self._closed.set()

    def _run(self) -> None:
        backoff = Backoff(AGAIN, AGAIN_AT_MOST)
        version = ""
        while not self._closed.is_set():
            try:
                if not version:
                    objects, version = self._api.listed(self._path, **self._selectors)
                    self._objects = {_key(each): each for each in objects}
                    self._heard(None)
                for event in self._api.watch(self._path, version, SECONDS, **self._selectors):
                    version = self._take(event)
                    if not version or self._closed.is_set():
                        break
                backoff.reset()
            except SchedulerFailed as error:
                version = ""
                self._trouble = error
                self._listed.set()
                self._closed.wait(backoff.delay())

    def _heard(self, what: Object | None) -> None:
        self._trouble = None
        self._listed.set()
        if self._changed is not None:
            self._changed(what)

    def _take(self, event: Object) -> str:
        """Apply a change, and return the version from which a watch may continue; "": everything must be listed again."""
        kind, what = event.get("type"), event.get("object") or {}
        if kind == "ERROR":
            return ""
        if kind in ("ADDED", "MODIFIED", "DELETED"):
            objects = dict(self._objects)  # other threads read the present one
            objects.pop(_key(what), None)
            if kind != "DELETED":
                objects[_key(what)] = what
            self._objects = objects
            self._heard(what)
        return str(what.get("metadata", {}).get("resourceVersion", ""))


def _key(what: Object) -> tuple[str, str]:
    metadata = what["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
