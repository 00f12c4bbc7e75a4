"""All objects of one kind, kept as they are on the server: listed once, and from then on told of every change.

A watch ends now and then, by the server's own limit, when it has forgotten where it was (410), or with the connection. It goes on from the
last object that it told of, or everything is listed anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from understudy.common.backoff import Backoff
from understudy.messages import kubernetes_api
from understudy.schedulers.base import SchedulerAway, SchedulerFailed
from understudy.schedulers.kubernetes.api import Api, Object

SECONDS = 60  # of a watch, after which the server ends it
FIRST = 10.0  # seconds that whoever asks waits for the first list
AGAIN, AGAIN_AT_MOST = 0.2, 5.0  # seconds between two attempts


class Informer:
    """A thread of its own until it is closed."""

    def __init__(self, api: Api, path: str, changed: Callable[[Object | None], None] | None = None, **selectors: str) -> None:
        """`changed`: called from the thread with what has changed, or None: everything may have."""
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
        """As they were told of last. Raises `SchedulerFailed` while the server does not answer, or refuses."""
        if not self._listed.wait(FIRST) and self._trouble is None:
            raise SchedulerAway(kubernetes_api.NO_ANSWER_YET(path=self._path))
        if self._trouble is not None:
            raise self._trouble
        return list(self._objects.values())

    def close(self) -> None:
        """Its thread ends with the watch that it is in."""
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
        """The version from which a watch may go on; "": all has to be listed anew."""
        kind, what = event.get("type"), event.get("object") or {}
        if kind == "ERROR":
            return ""
        if kind in ("ADDED", "MODIFIED", "DELETED"):
            objects = dict(self._objects)  # others read the one that is there
            objects.pop(_key(what), None)
            if kind != "DELETED":
                objects[_key(what)] = what
            self._objects = objects
            self._heard(what)
        return str(what.get("metadata", {}).get("resourceVersion", ""))


def _key(what: Object) -> tuple[str, str]:
    metadata = what["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
