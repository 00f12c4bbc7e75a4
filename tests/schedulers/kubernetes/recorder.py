"""A stand-in for the API server's client: keeps objects, and notes which right each request needs. What they mean it does not know."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import unquote

from understudy.schedulers.kubernetes.api import Exists, Missing

Object = dict[str, Any]


class Right(NamedTuple):
    group: str
    resource: str  # with its part: "pods", "understudyjobs/status"
    verb: str
    namespace: str
    name: str


def parsed(path: str) -> tuple[str, str, str, str]:
    """Group, resource with its part, namespace, name."""
    words = [unquote(word) for word in path.strip("/").split("/")]
    group, rest = ("", words[2:]) if words[0] == "api" else (words[1], words[3:])
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    resource, name, part = [*rest, "", "", ""][:3]
    return group, f"{resource}/{part}" if part else resource, namespace, name


class Recorder:
    """Has the methods of `Api`."""

    def __init__(self, *discovered: tuple[str, Object]) -> None:
        """`discovered`: paths that everybody may read, and what is there."""
        self.needed: set[Right] = set()
        self.objects: dict[tuple[str, str, str, str], Object] = {}
        self._discovered = dict(discovered)
        self._noted = threading.Condition()

    def wait_for(self, condition: Callable[[set[Right]], bool]) -> None:
        """Until that is true of what is needed: threads ask, too."""
        with self._noted:
            assert self._noted.wait_for(lambda: condition(self.needed), 60), self.needed

    def put(self, path: str, what: Object) -> None:
        group, resource, namespace, _ = parsed(path)
        metadata = what["metadata"]
        metadata.setdefault("uid", f"uid of {metadata['name']}")
        metadata.setdefault("resourceVersion", "1")
        if namespace:
            metadata.setdefault("namespace", namespace)
        self.objects[group, resource, namespace, metadata["name"]] = what

    def read(self, path: str) -> Object:
        if path in self._discovered:
            return self._discovered[path]
        return copy.deepcopy(self._found(path, "get"))

    def listed(self, path: str, **selectors: str) -> tuple[list[Object], str]:
        group, resource, namespace, _ = self._note(path, "list")
        found = [what for (g, r, n, _), what in self.objects.items() if (g, r) == (group, resource) and namespace in ("", n)]
        return copy.deepcopy(found), "1"

    def watch(self, path: str, version: str, seconds: int, **selectors: str) -> Iterator[Object]:
        """Of nothing: who watches waits for as long as the tests run."""
        self._note(path, "watch")
        threading.Event().wait()
        yield {}

    def create(self, path: str, body: Object) -> Object:
        self._note(path, "create")
        group, resource, namespace, _ = parsed(path)
        if (group, resource, namespace, body["metadata"]["name"]) in self.objects:
            raise Exists("it is there")
        self.put(path, copy.deepcopy(body))
        return body

    def replace(self, path: str, body: Object) -> Object:
        found = self._found(path, "update")
        found.clear()
        found |= copy.deepcopy(body)
        return body

    def patch(self, path: str, changes: Object) -> Object:
        found = self._found(path, "patch")
        _merge(found, changes)
        return found

    def delete(self, path: str, grace: int | None = None, uid: str = "") -> None:
        self._found(path, "delete")
        group, resource, namespace, name = parsed(path)
        del self.objects[group, resource, namespace, name]

    def _note(self, path: str, verb: str) -> tuple[str, str, str, str]:
        group, resource, namespace, name = parsed(path)
        with self._noted:
            self.needed.add(Right(group, resource, verb, namespace, name))
            self._noted.notify_all()
        return group, resource, namespace, name

    def _found(self, path: str, verb: str) -> Object:
        group, resource, namespace, name = self._note(path, verb)
        found = self.objects.get((group, resource.partition("/")[0], namespace, name))
        if found is None:
            raise Missing(f"{path} is not there")
        return found


def _merge(into: Object, changes: Object) -> None:
    for key, value in changes.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = copy.deepcopy(value)
