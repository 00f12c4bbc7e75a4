"""Let an orchestrator prove to an agent that it has the agent's token.

An agent sends a nonce with each attempt to connect. An orchestrator that knows the agent's token answers with an HMAC of the nonce, keyed
with that token. Another server in the orchestrator's place while it is away (an ingress without a backend, another orchestrator, a wrong
secret) cannot, so its answers end no training. The proof protects from mistakes, not from an attacker who reads the network: use TLS
for that.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

NONCE = "understudy-nonce"  # header of an agent's request
PROOF = "understudy-proof"  # header of the answer


def nonce() -> str:
    return secrets.token_hex(16)


def proof(token: str, of: str) -> str:
    """Return the answer to the nonce `of`, in hexadecimal."""
    return hmac.new(token.encode(), b"understudy orchestrator " + of.encode(), hashlib.sha256).hexdigest()


def is_proven(token: str, of: str, answer: str) -> bool:
    return hmac.compare_digest(proof(token, of).encode(), answer.encode())
