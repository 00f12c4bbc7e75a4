"""Authorization: roles, and the tokens and certificates that carry them.

The *secret* of an orchestrator is one text: the file of `--token-file`, or `RUN_DIR/token` of a run. It grants everything. Tokens are made
from it (`understudy token`): JSON Web Tokens (RFC 7519, HMAC with SHA-256) with a role, and optionally one job and an expiry time. With
mutual TLS a client's certificate carries the same in a URI among its alternative names (`understudy certs`): `understudy:ROLE` or
`understudy:ROLE:JOB`.

An agent's token or certificate (`understudy:agent:NODE`) names its node, and a worker's token its job and its node, so that one node cannot
impersonate another. The secret itself names none and is valid for any. So are workers' tokens of earlier versions, which end with their
jobs.

A file with several lines holds several secrets: the first one signs, all are accepted. So a secret can be rotated without stopping
anything: put the new one in the first line, distribute it, and remove the old one.

Tokens travel as `Authorization: Bearer TOKEN` and are never logged or journalled. Without TLS, anyone who can read the network traffic can
read them.
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
SHORTEST = 16  # minimum length of a secret that others can try to guess
URI = "understudy:"


class Role(StrEnum):
    READ = "read"  # look at jobs, nodes and metrics
    OPERATE = "operate"  # also migrate ranks and end jobs
    SUBMIT = "submit"  # also start jobs
    EVIDENCE = "evidence"  # report evidence against nodes, and nothing else
    AGENT = "agent"  # serve a node
    WORKER = "worker"  # serve a job's workers: made by the orchestrator for each job that it starts


# An operator may taint nodes and migrate ranks, and so may report evidence, which causes no more than that; a submitter may do all of it.
_INCLUDED = {Role.OPERATE: {Role.READ, Role.EVIDENCE}, Role.SUBMIT: {Role.READ, Role.OPERATE, Role.EVIDENCE}}


class Unknown(Exception):
    """No credential identifies the client. The text names the mistake."""


@dataclass(frozen=True)
class Grant:
    """The rights of a credential. `role` None: everything. `job` empty: for all jobs. `node`: of an agent or of workers; empty: any."""

    role: Role | None
    job: str = ""
    node: str = ""

    def allows(self, role: Role, job: str = "") -> bool:
        """Return whether the grant includes this role. `job`: the job that is concerned; empty: more than one."""
        fits = self.role is None or role is self.role or role in _INCLUDED.get(self.role, ())
        return fits and self.job in ("", job)

    def serves(self, node: str) -> bool:
        """Return whether an agent with this grant may act for the node."""
        return self.role is None or self.node == node or (not self.node and self.role is not Role.AGENT)


EVERYTHING = (Grant(None),)


class Access:
    def __init__(self, given: Sequence[str], *, asks: bool = True) -> None:
        """Create the access. `given`: the secrets, at least one. Without `asks`, no credential is needed: on the loopback address only."""
        self._secrets = list(given)
        self._asks = asks

    def token(self, role: Role, job: str = "", days: float = 0.0, node: str = "") -> str:
        """Return a new token. `days` 0: no expiry. `node`: of an agent, or of a job's workers."""
        claims: dict[str, Any] = {"role": role.value}
        if job:
            claims["job"] = job
        if node:
            claims["node"] = node
        if days:
            claims["exp"] = int(time.time() + days * 86400)
        return jwt.encode(claims, _key(self._secrets[0]), algorithm="HS256")

    def grants(self, authorization: str | None, certificate: Mapping[str, Any] | None) -> tuple[Grant, ...]:
        """Return the grants of an `Authorization` header and a verified client's certificate (as `ssl` describes it). Raises `Unknown`."""
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
        """Return the job and node for which this orchestrator, or one before it, made this worker's token; None for anything else."""
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
    """Return the lines of the file, or the value of the environment variable; empty if there is neither. Raises `OSError`, `ValueError`."""
    if path is None:
        return [variable.strip()] if variable.strip() else []
    found = [line.strip() for line in path.read_text().splitlines() if line.strip()]
    if not found:
        raise ValueError(orchestrators.SECRET_FILE_EMPTY(path=path))
    return found


def load_or_create_token(run_dir: Path) -> str:
    """Return the run's secret: from the environment, else from the run directory, else a new one. It is stored in the directory."""
    return load_or_create(run_dir / SECRET, os.environ.get(TOKEN_VARIABLE, "").strip())


def load_or_create(path: Path, given: str = "") -> str:
    """Return the secret in the file at `path`. First, `given` is stored there if it is not empty, or a new one if there is no file."""
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
