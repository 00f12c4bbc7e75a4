"""Who may do what: roles, and the tokens and certificates that carry them.

The *secret* of an orchestrator is one text: the file of `--token-file`, or `RUN_DIR/token` of a run. It opens everything. Tokens are made
from it (`understudy token`): JSON Web Tokens (RFC 7519, HMAC with SHA-256) that say a role, perhaps one job, and perhaps until when. With
mutual TLS a client's certificate says the same in a URI among its alternative names (`understudy certs`): `understudy:ROLE` or
`understudy:ROLE:JOB`.

An agent's token or certificate (`understudy:agent:NODE`) names its node, and a worker's token its job and its node, so that one node
cannot speak for another. The secret itself names none and may serve any. So may workers' tokens of earlier versions, which end with their
jobs.

A file with several lines holds several secrets: the first one signs, all are believed. So a secret is changed without stopping anything:
put the new one in front, hand it out, and take the old one away.

Tokens travel as `Authorization: Bearer TOKEN` and are never logged or journalled. Without TLS, whoever hears the network can read them
there.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import jwt

from understudy.common.names import SECRET, TOKEN_VARIABLE
from understudy.links.proof import PROOF, proof
from understudy.messages import http_requests, orchestrators

LONGEST_NONCE = 100
SHORTEST = 16  # characters of a secret that others can try to guess
URI = "understudy:"


class Role(StrEnum):
    READ = "read"  # look at jobs, nodes and metrics
    OPERATE = "operate"  # also migrate ranks and end jobs
    SUBMIT = "submit"  # also start jobs
    EVIDENCE = "evidence"  # tell what speaks against nodes, and nothing else
    AGENT = "agent"  # serve a node
    WORKER = "worker"  # serve a job's workers: made by the orchestrator for each job that it starts


# An operator may taint nodes and migrate ranks, and so may say what leads to that at most; who may submit may do all that, too.
_INCLUDED = {Role.OPERATE: {Role.READ, Role.EVIDENCE}, Role.SUBMIT: {Role.READ, Role.OPERATE, Role.EVIDENCE}}


class Unknown(Exception):
    """Nothing that was shown says who is asking. The text says what is wrong with it."""


@dataclass(frozen=True)
class Grant:
    """`role` None: everything. `job` empty: for all jobs. `node`: of an agent or of workers; empty: any."""

    role: Role | None
    job: str = ""
    node: str = ""

    def allows(self, role: Role, job: str = "") -> bool:
        """`job`: what it is about; empty: about more than one."""
        fits = self.role is None or role is self.role or role in _INCLUDED.get(self.role, ())
        return fits and self.job in ("", job)

    def serves(self, node: str) -> bool:
        """Whether an agent that shows this may speak for the node."""
        return self.role is None or self.node == node or (not self.node and self.role is not Role.AGENT)


EVERYTHING = (Grant(None),)


class Access:
    def __init__(self, given: Sequence[str], *, asks: bool = True) -> None:
        """`given`: the secrets, at least one. Without `asks` everybody may do everything: on the loopback address only."""
        self._secrets = list(given)
        self._asks = asks

    def token(self, role: Role, job: str = "", days: float = 0.0, node: str = "") -> str:
        """`days` 0: without an end. `node`: of an agent, or of a job's workers."""
        claims: dict[str, Any] = {"role": role.value}
        if job:
            claims["job"] = job
        if node:
            claims["node"] = node
        if days:
            claims["exp"] = int(time.time() + days * 86400)
        return jwt.encode(claims, _key(self._secrets[0]), algorithm="HS256")

    def grants(self, authorization: str | None, certificate: Mapping[str, Any] | None) -> tuple[Grant, ...]:
        """What an `Authorization` header and a verified client's certificate (as `ssl` describes it) allow. Raises `Unknown`."""
        if not self._asks:
            return EVERYTHING
        shown = tuple(_of_certificate(certificate or {}))
        scheme, _, given = (authorization or "").partition(" ")
        if scheme.lower() == "bearer" and given.strip():
            return (*shown, self._of_token(given.strip()))
        if certificate is None:
            raise Unknown(http_requests.TOKEN_NEEDED())
        return shown

    def placed(self, authorization: str | None) -> Grant | None:
        """The job and node for which this orchestrator, or one before it, has made a worker's token; None if it is none."""
        scheme, _, given = (authorization or "").partition(" ")
        try:
            grant = self._of_token(given.strip()) if scheme.lower() == "bearer" else None
        except Unknown:
            return None
        return grant if grant is not None and grant.role is Role.WORKER else None

    def proof(self, authorization: str | None, nonce: str | None) -> dict[str, str]:
        """Return headers that show an agent that this orchestrator knows the token it has sent; empty if it does not."""
        scheme, _, given = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not nonce or len(nonce) > LONGEST_NONCE:
            return {}
        try:
            self._of_token(given.strip())
        except Unknown:
            return {}
        return {PROOF: proof(given.strip(), nonce)}

    def _of_token(self, given: str) -> Grant:
        if any(hmac.compare_digest(given.encode(), secret.encode()) for secret in self._secrets):
            return Grant(None)
        for secret in self._secrets:
            try:
                claims = jwt.decode(given, _key(secret), algorithms=["HS256"])
                return Grant(Role(claims["role"]), str(claims.get("job", "")), str(claims.get("node", "")))
            except jwt.ExpiredSignatureError:
                raise Unknown(http_requests.TOKEN_EXPIRED()) from None
            except (jwt.InvalidTokenError, KeyError, ValueError):
                continue
        raise Unknown(http_requests.TOKEN_NEEDED())


def _key(secret: str) -> bytes:
    return hmac.new(secret.encode(), b"key of understudy tokens", hashlib.sha256).digest()


def _of_certificate(certificate: Mapping[str, Any]) -> Iterable[Grant]:
    for kind, name in certificate.get("subjectAltName", ()):
        role, _, about = name.removeprefix(URI).partition(":")
        if kind == "URI" and name.startswith(URI) and role in list(Role):
            yield Grant(Role.AGENT, node=about) if role == Role.AGENT else Grant(Role(role), about)


def read_secrets(path: Path | None, variable: str = "") -> list[str]:
    """The lines of the file, or what the environment variable holds; empty if there is neither. Raises `OSError`, `ValueError`."""
    if path is None:
        return [variable.strip()] if variable.strip() else []
    found = [line.strip() for line in path.read_text().splitlines() if line.strip()]
    if not found:
        raise ValueError(orchestrators.SECRET_FILE_EMPTY(path=path))
    return found


def load_or_create_token(run_dir: Path) -> str:
    """The run's secret: from the environment, else from the run directory, else new. It is in the directory
    afterwards.
    """
    return load_or_create(run_dir / SECRET, os.environ.get(TOKEN_VARIABLE, "").strip())


def load_or_create(path: Path, given: str = "") -> str:
    """The secret in the file at `path`, after putting `given` there if it is not empty, or a new one if nothing is there."""
    known = path.read_text().strip() if path.exists() else ""
    secret = given or known or secrets.token_urlsafe(32)
    if secret != known:
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(secret + "\n")
        temporary.rename(path)
    return secret
