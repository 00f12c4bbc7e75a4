"""The API server, through the official client, which handles configuration, credentials and connections.

Objects are passed as plain JSON, because one client may talk to servers of many versions.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import kubernetes.client
import kubernetes.config
import urllib3

from understudy.messages import kubernetes_api
from understudy.schedulers.base import SchedulerAway, SchedulerFailed
from understudy.schedulers.kubernetes.names import FIELDS

CONNECT, READ = 3.0, 10.0  # seconds for a connection, and for an answer
AGAIN = (408, 429, 500, 502, 503, 504)
MERGE = "application/merge-patch+json"
PAGE = 500  # objects of a list in one answer

Object = dict[str, Any]


class Missing(SchedulerFailed):
    """The object does not exist (404)."""


class Conflict(SchedulerFailed):
    """The object exists already, or has changed since it was read (409)."""


class Exists(Conflict):
    """An object of this name exists already."""


class ServerFailed(SchedulerAway):
    """The server, or an admission webhook that it calls, has failed (500)."""


class Api:
    """One server. Every method raises `SchedulerAway`, `Missing`, `Conflict` or another `SchedulerFailed`. Threads may share it."""

    def __init__(self, configuration: kubernetes.client.Configuration) -> None:
        configuration.retries = False  # callers decide about retries
        self._configuration = configuration
        self._client = kubernetes.client.ApiClient(configuration)

    @staticmethod
    def found() -> Api:
        """Connect to the server of KUBECONFIG, of this pod, or of ~/.kube/config. Raises `SchedulerFailed`."""
        configuration = kubernetes.client.Configuration()
        try:
            if not os.environ.get("KUBECONFIG") and "KUBERNETES_SERVICE_HOST" in os.environ:
                kubernetes.config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            else:
                kubernetes.config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except (kubernetes.config.ConfigException, OSError) as error:
            raise SchedulerFailed(kubernetes_api.NO_CLUSTER(reason=str(error))) from error
        return Api(configuration)

    def read(self, path: str) -> Object:
        return self._call("GET", path)

    def listed(self, path: str, **selectors: str) -> tuple[list[Object], str]:
        """Return all objects, and the version from which a watch continues. `selectors`: `labelSelector`, `fieldSelector`."""
        found: list[Object] = []
        more = ""
        while True:
            query = {"limit": str(PAGE), **selectors, **({"continue": more} if more else {})}
            page = self._call("GET", f"{path}?{urlencode(query)}")
            found += page.get("items") or []
            more = page.get("metadata", {}).get("continue", "")
            if not more:
                return found, str(page.get("metadata", {}).get("resourceVersion", ""))

    def watch(self, path: str, version: str, seconds: int, **selectors: str) -> Iterator[Object]:
        """Yield changes from that version on, for at most this time: `{"type": ..., "object": ...}`."""
        query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version, "timeoutSeconds": str(seconds), **selectors}
        answer = self._request("GET", f"{path}?{urlencode(query)}", None, "application/json", seconds + READ)
        try:
            rest = b""
            for chunk in answer.response.stream():
                *whole, rest = (rest + chunk).split(b"\n")
                yield from map(json.loads, filter(None, whole))
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise SchedulerAway(kubernetes_api.STOPPED(request=f"GET {path}", kind=type(error).__name__)) from error
        finally:
            answer.response.close()

    def create(self, path: str, body: Object) -> Object:
        return self._call("POST", path, body)

    def replace(self, path: str, body: Object) -> Object:
        """Replace an object with the `resourceVersion` that was read: `Conflict` if it has been changed since."""
        return self._call("PUT", path, body)

    def patch(self, path: str, changes: Object) -> Object:
        """Apply a merge patch."""
        return self._call("PATCH", path, changes, MERGE)

    def delete(self, path: str, grace: int | None = None, uid: str = "") -> None:
        """Delete an object. `grace`: seconds; None: as in the object. `uid`: only this one, not a later one of the same name."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if uid:
            options["preconditions"] = {"uid": uid}
        self._call("DELETE", path, options)

    def _call(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> Object:
        answer = self._request(method, path, body, kind, READ)
        try:
            found: Object = json.loads(answer.read() or b"{}")
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise SchedulerAway(kubernetes_api.STOPPED(request=_what(method, path), kind=type(error).__name__)) from error
        except ValueError as error:
            raise SchedulerFailed(kubernetes_api.NOT_JSON(request=_what(method, path))) from error
        return found

    def _request(self, method: str, path: str, body: Object | None, kind: str, seconds: float) -> Any:
        """Send a request, and return the unread answer of a successful one."""
        headers = {"Accept": "application/json", "Content-Type": kind, "User-Agent": FIELDS}
        auths: Any = self._configuration.auth_settings()
        headers |= {auth["key"]: auth["value"] for auth in auths.values()}
        try:
            answer: Any = self._client.call_api(method, self._configuration.host + path, headers, body, _request_timeout=(CONNECT, seconds))
            if not 200 <= answer.status < 300:
                reason, message = _problem(answer.read())
                raise _failed(_what(method, path), answer.status, reason, message or answer.reason)
        except kubernetes.client.ApiException as error:  # the request could not be sent
            raise SchedulerAway(kubernetes_api.NOT_ASKED(request=_what(method, path), reason=error.reason)) from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise SchedulerAway(kubernetes_api.SILENT(request=_what(method, path), kind=type(error).__name__)) from error
        return answer


def _what(method: str, path: str) -> str:
    return f"{method} {path.partition('?')[0]}"


def _failed(what: str, status: int, reason: str, answer: str) -> SchedulerFailed:
    text = kubernetes_api.REFUSED(request=what, answer=answer, status=status)
    if status == 404:
        return Missing(text)
    if status == 409:
        return Exists(text) if reason == "AlreadyExists" else Conflict(text)
    if status == 500:
        return ServerFailed(text)
    return SchedulerAway(text) if status in AGAIN or not status else SchedulerFailed(text)


def _problem(data: bytes) -> tuple[str, str]:
    """Return the reason (for programs) and the message of an error answer (`Status`)."""
    try:
        found = json.loads(data)
        return str(found.get("reason") or ""), str(found.get("message") or "")[:500]
    except (ValueError, AttributeError):
        return "", ""


def path(kind: str, namespace: str, name: str = "", part: str = "") -> str:
    """Return the path of a core object: "pods", "configmaps", ...; without a namespace, of a cluster-wide one."""
    return _path("/api/v1", kind, namespace, name, part)


def group_path(group: str, kind: str, namespace: str, name: str = "", part: str = "") -> str:
    """Return the path of an object of a group. `group`: with its version, such as "coordination.k8s.io/v1"."""
    return _path(f"/apis/{group}", kind, namespace, name, part)


def _path(base: str, kind: str, namespace: str, name: str, part: str) -> str:
    words: Sequence[str] = [*(("namespaces", namespace) if namespace else ()), kind, *filter(None, (name, part))]
    return base + "/" + "/".join(quote(word, safe="") for word in words)


def labelled(labels: Mapping[str, str]) -> str:
    """Return the value of `labelSelector`."""
    return ",".join(f"{key}={value}" for key, value in labels.items())
