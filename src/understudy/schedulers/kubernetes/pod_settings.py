"""The settings of a pod with workers: the controller writes them, `understudy run` reads them there. Needs no Kubernetes client."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class PodSettings:
    """The settings of a pod with workers (`POD_VARIABLE`)."""

    job: str
    number: int  # its node rank
    pods: int  # number of pods with ranks
    ranks: int  # in each pod
    spares: int  # at the start; -1: its share of the job's
    claim: int  # the number of the claim that it serves; -1: none
    orchestrators: str  # URLs
    certificate: str  # the certificate to trust; "": no TLS
    timeouts: dict[str, Any]
    grace: int  # seconds for its end

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)
