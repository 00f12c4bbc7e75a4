"""The settings with which the orchestrator is started, as JSON: `{"spec": {...JobSpec}, "timeouts": {...Timeouts}, "policy": "..."}`.

`policy` is the text of a policy file (`policy.rules`), empty for the default one. `timeouts` may be left out, and so may every field that
has a default; unknown keys are ignored. `identity` is created when a job begins. The command line writes all of it. The orchestrator keeps
it in the journal, so that a journal can be read by itself.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from understudy.core.model import JobSpec, Timeouts
from understudy.messages import orchestrators
from understudy.policy.rules import parse


@dataclass(frozen=True)
class Settings:
    spec: JobSpec
    timeouts: Timeouts = field(default_factory=Timeouts)
    policy: str = ""
    identity: Annotated[str, Field(pattern="^([0-9a-f]{16})?$")] = (
        ""  # unique to this job, even among jobs with the same name; "": from an earlier version
    )

    def identified(self) -> Settings:
        """Return the settings of a new job, with an identity."""
        return self if self.identity else replace(self, identity=new_identity())

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Settings:
        """Parse settings. Raises `ValueError` that names the mistake."""
        try:
            found = _ADAPTER.validate_python(_as_begun(text))
        except ValidationError as error:
            raise ValueError(orchestrators.SETTINGS_REFUSED(reason=str(error))) from error
        parse(found.policy, "policy")
        return found


def _as_begun(text: str) -> object:
    """Return the settings, with the defaults of their time for a job that an earlier version began. Raises `ValidationError` for invalid
    JSON.
    """
    found = _JSON.validate_json(text)
    if isinstance(found, dict) and isinstance(found.get("spec"), dict):
        found["spec"].setdefault("bounded_places", False)
    return found


def new_identity() -> str:
    """Return 16 random hexadecimal digits."""
    return secrets.token_hex(8)


_ADAPTER = TypeAdapter(Settings)
_JSON: TypeAdapter[object] = TypeAdapter(object)
