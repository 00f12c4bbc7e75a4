"""A small client of the API server, for the stand-ins on every node and for the tests: requests, and following a list of objects.

Objects are plain dictionaries, as the server sends them. Not the official client, because importing that one costs a second of CPU time
and more in every process, and there is one for each node; a test tries the official one in a pod.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Object = dict[str, Any]
Tell = Callable[[str, Object | None], None]

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
AGAIN = 0.3  # seconds until a lost server is tried again


class Refused(Exception):
    """The server's error answer."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.content: Object = {}
        with contextlib.suppress(ValueError):
            self.content = json.loads(body)
        super().__init__(f"{status}: {self.content.get('message') or body.decode(errors='replace')}")


@dataclass(frozen=True)
class Access:
    host: str
    port: int
    authority: Path
    token: str


class Api:
    """Threads may share it. `limit`: seconds for an answer."""

    def __init__(self, access: Access, limit: float = 10.0) -> None:
        self._access = access
        self._limit = limit
        self._context = ssl.create_default_context(cafile=str(access.authority))
        self._kept: list[http.client.HTTPSConnection] = []
        self._lock = threading.Lock()

    def get(self, path: str, **query: str) -> Object:
        return self.request("GET", f"{path}?{urllib.parse.urlencode(query)}" if query else path)

    def create(self, path: str, content: Object) -> Object:
        return self.request("POST", path, content)

    def patch(self, path: str, content: Any, kind: str = MERGE) -> Object:
        return self.request("PATCH", path, content, kind)

    def delete(self, path: str, **options: Any) -> Object:
        return self.request("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", **options})

    def request(self, method: str, path: str, content: Any = None, kind: str = "application/json") -> Object:
        """Send a request. Raises `Refused`, or OSError where no server answers."""
        with self._lock:
            connection = self._kept.pop() if self._kept else None
        if connection is not None:
            try:
                return self._ask(connection, method, path, content, kind)
            except (ConnectionError, http.client.HTTPException, ssl.SSLError):
                connection.close()  # it was kept, and may have ended long ago
        connection = self._connection(self._limit)
        try:
            return self._ask(connection, method, path, content, kind)
        except http.client.HTTPException as error:
            connection.close()
            raise ConnectionError(f"{type(error).__name__}: {error}") from error
        except OSError:
            connection.close()
            raise

    def _ask(self, connection: http.client.HTTPSConnection, method: str, path: str, content: Any, kind: str) -> Object:
        body = None if content is None else json.dumps(content)
        connection.request(method, path, body, self._headers(kind))
        answer = connection.getresponse()
        text = answer.read()
        with self._lock:
            self._kept.append(connection)
        if answer.status >= 300:
            raise Refused(answer.status, text)
        found: Object = json.loads(text)
        return found

    def _headers(self, kind: str = "application/json") -> dict[str, str]:
        return {"Authorization": f"Bearer {self._access.token}", "Content-Type": kind, "Accept": "application/json"}

    def _connection(self, limit: float | None) -> http.client.HTTPSConnection:
        access = self._access
        connection = http.client.HTTPSConnection(access.host, access.port, timeout=self._limit, context=self._context)
        connection.connect()
        connection.sock.settimeout(limit)
        # A server that is cut off sends nothing; a client that only listens has to notice.
        for option, value in ((socket.TCP_KEEPIDLE, 3), (socket.TCP_KEEPINTVL, 2), (socket.TCP_USER_TIMEOUT, 9000)):
            connection.sock.setsockopt(socket.IPPROTO_TCP, option, value)
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return connection

    def events(self, path: str, version: str, **query: str) -> Iterator[Object]:
        """Yield the changes of the objects of this list after `version`, until the server ends it."""
        words = urllib.parse.urlencode({"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true", **query})
        with contextlib.closing(self._connection(None)) as connection:
            connection.request("GET", f"{path}?{words}", headers=self._headers())
            answer = connection.getresponse()
            if answer.status >= 300:
                raise Refused(answer.status, answer.read())
            while line := answer.readline():
                yield json.loads(line)


class Follower(threading.Thread):
    """Tells every object of a list as it is and as it becomes; None in its place once it is gone. Starts over when the server is lost."""

    def __init__(self, api: Api, path: str, tell: Tell, listed: Callable[[], None] = lambda: None, **query: str) -> None:
        """`tell` gets the object's uid. `listed` is called after every complete list."""
        super().__init__(daemon=True, name=f"follower of {path}")
        self._api, self._path, self._query = api, path, query
        self._tell, self._listed = tell, listed
        self._known: set[str] = set()

    def run(self) -> None:
        pause = threading.Event()
        while True:
            try:
                self._follow()
            except (OSError, Refused, http.client.HTTPException, ValueError):  # lost, or too late; a line may have been cut off
                pause.wait(AGAIN)

    def _follow(self) -> None:
        found = self._api.get(self._path, **self._query)
        items = {item["metadata"]["uid"]: item for item in found["items"] or []}
        for uid in self._known - items.keys():
            self._gone(uid)
        for uid, item in items.items():
            self._is(uid, item)
        self._listed()
        for event in self._api.events(self._path, found["metadata"]["resourceVersion"], **self._query):
            item = event["object"]
            if event["type"] == "ERROR":
                return
            if event["type"] == "DELETED":
                self._gone(item["metadata"]["uid"])
            elif event["type"] != "BOOKMARK":
                self._is(item["metadata"]["uid"], item)

    def _is(self, uid: str, item: Object) -> None:
        self._known.add(uid)
        self._tell(uid, item)

    def _gone(self, uid: str) -> None:
        self._known.discard(uid)
        self._tell(uid, None)
