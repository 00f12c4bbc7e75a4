"""The command line's side of the orchestrator's HTTP API."""

from __future__ import annotations

import ssl
from typing import Any

import httpx

from understudy.agent.tls import trusting
from understudy.cli.run_directory import RunDirectory


class NoAnswer(Exception):
    """Nobody answers there: the orchestrator is not running, or not reachable."""


class Denied(Exception):
    """The orchestrator said no; the text is its reason."""


def call(run: RunDirectory, method: str, path: str, body: dict[str, Any] | None = None, limit: float = 5.0) -> Any:
    """One request, as JSON. Raises `NoAnswer` or `Denied`."""
    url = run.orchestrator()
    if url is None:
        raise NoAnswer("the orchestrator has not said where it listens")
    certificate = run.job().get("certificate", "")
    verify: ssl.SSLContext | bool = trusting(certificate) or True
    try:
        # Not through a proxy: that is for the world outside the cluster.
        with httpx.Client(timeout=limit, trust_env=False, verify=verify) as client:
            answer = client.request(method, url + path, json=body, headers={"Authorization": f"Bearer {run.token()}"})
    except (httpx.TransportError, OSError) as error:
        raise NoAnswer(f"{url} does not answer: {error}") from error
    if answer.status_code >= 400:
        try:
            detail = answer.json()["detail"]
        except (ValueError, KeyError, TypeError):
            detail = answer.text
        raise Denied(detail if isinstance(detail, str) else str(detail))
    return answer.json()
