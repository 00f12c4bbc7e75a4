"""The request of an agent to its template of workers: one datagram of JSON with six file descriptors.

The descriptors are the worker's end of its link, its stdout, its stderr, the ends at which these two can be read, and a pipe whose other
end the agent closes when the worker may go on. The answer is `{"pid": N}`; `{"failed": "why"}` if that did not work; or `{"refused":
"why"}` if this template can never fork.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

FDS = 6
PLACEHOLDER = "template" + "-" * 24  # replaced by a worker's name, in the arguments and the environment


@dataclass(frozen=True)
class ForkRequest:
    worker: str
    page: str
    environment: dict[str, str]  # where the worker's differs from the template's

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def decode(data: bytes) -> ForkRequest:
        fields = json.loads(data)
        return ForkRequest(fields["worker"], fields["page"], fields["environment"])
