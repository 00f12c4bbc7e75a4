"""How an orchestrator shows an agent that it is the one whose token the agent has.

An agent sends a nonce with each attempt to connect. An orchestrator that knows the agent's token answers with an HMAC of the nonce, keyed
with that token. What stands in the orchestrator's place while it is away (an ingress without a backend, another orchestrator, a wrong
secret) cannot, so whatever it answers ends no training. The proof protects from mistakes, not from somebody who reads the network: use TLS
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
