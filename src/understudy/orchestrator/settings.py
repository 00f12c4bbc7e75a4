"""What the orchestrator is started with, as JSON: `{"spec": {...JobSpec}, "timeouts": {...Timeouts}, "policy": "..."}`.

`policy` is the text of a policy's file (`policy.rules`), empty for the one that ships. `timeouts` may be left out, and so may every field
that has a default; other keys are not looked at. The command line writes it, the orchestrator reads it and keeps it in the journal, so that
a journal can be read without anything else.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from pydantic import TypeAdapter, ValidationError

from understudy.core.model import JobSpec, Timeouts
from understudy.messages import orchestrators
from understudy.policy.rules import parse


@dataclass(frozen=True)
class Settings:
    spec: JobSpec
    timeouts: Timeouts = field(default_factory=Timeouts)
    policy: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Settings:
        """Raises `ValueError` that says what is wrong."""
        try:
            found = _ADAPTER.validate_python(_as_begun(text))
        except ValidationError as error:
            raise ValueError(orchestrators.SETTINGS_REFUSED(reason=str(error))) from error
        parse(found.policy, "policy")
        return found


def _as_begun(text: str) -> object:
    """The settings of a job that an earlier version began decide as they did then. Raises `ValidationError` if it is no JSON."""
    found = _JSON.validate_json(text)
    if isinstance(found, dict) and isinstance(found.get("spec"), dict):
        found["spec"].setdefault("bounded_places", False)
    return found


_ADAPTER = TypeAdapter(Settings)
_JSON: TypeAdapter[object] = TypeAdapter(object)
