"""What a pod with workers goes by: the controller writes it, `understudy run` reads it there. Needs no client of Kubernetes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class PodSettings:
    """What a pod with workers goes by (`POD_VARIABLE`)."""

    job: str
    number: int  # its node rank
    pods: int  # with ranks
    ranks: int  # in each
    spares: int  # that it has at first; -1: its share of the job's
    claim: int  # the number of the claim that it serves; -1: none
    orchestrators: str  # URLs
    certificate: str  # by which these are known; "": no TLS
    timeouts: dict[str, Any]
    grace: int  # seconds that it has for its end

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)
