"""The token: whoever has it may read and command this job, whoever has not may do nothing.

One random token per run, in `RUN_DIR/token` with mode 0600 (or given through UNDERSTUDY_TOKEN, on nodes that do not
share the run directory). It travels as `Authorization: Bearer TOKEN`, is compared in constant time, and is never
logged.

Known limits: one token for everything. On a network that is not trusted, use TLS: without it the token can be read
there.
"""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path

VARIABLE = "UNDERSTUDY_TOKEN"


def load_or_create_token(run_dir: Path) -> str:
    """The run's token: from the environment, else from the run directory, else new. It is in the directory
    afterwards.
    """
    return load_or_create(run_dir / "token", os.environ.get(VARIABLE, "").strip())


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


def authorized(header: str | None, token: str | None) -> bool:
    """Does this `Authorization` header carry the token? Without a token nothing is asked for."""
    if token is None:
        return True
    scheme, _, given = (header or "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())
