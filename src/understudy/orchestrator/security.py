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
    path = run_dir / "token"
    given = os.environ.get(VARIABLE, "").strip()
    if not given and path.exists():
        token = path.read_text().strip()
        if token:
            return token
    token = given or secrets.token_urlsafe(32)
    if not path.exists() or path.read_text().strip() != token:
        temporary = path.with_name(f".token.{os.getpid()}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(token + "\n")
        temporary.rename(path)
    return token


def authorized(header: str | None, token: str) -> bool:
    """Does this `Authorization` header carry the token?"""
    scheme, _, given = (header or "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())
