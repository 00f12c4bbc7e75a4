"""What the orchestrator is started with, as JSON: `{"spec": {...JobSpec}, "timeouts": {...Timeouts}}`.

`timeouts` may be left out, and so may every field that has a default; other keys are not looked at. The command line
writes it, the orchestrator reads it and keeps it in the journal, so that a journal can be read without anything else.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from pydantic import TypeAdapter, ValidationError

from understudy.core.model import JobSpec, Timeouts


@dataclass(frozen=True)
class Settings:
    spec: JobSpec
    timeouts: Timeouts = field(default_factory=Timeouts)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Settings:
        """Raises `ValueError` that says what is wrong."""
        try:
            return _ADAPTER.validate_json(text)
        except ValidationError as error:
            raise ValueError(f"not the settings of a job: {error}") from error


_ADAPTER = TypeAdapter(Settings)
