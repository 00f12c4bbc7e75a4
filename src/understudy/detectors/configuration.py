"""What configured detectors share: types with bounds, errors that name the entry and the mistake, and foreign text made safe to show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from understudy.common.bounds import LAST_TIME, plain
from understudy.detectors.base import Severity, Subject
from understudy.messages import detector_files
from understudy.messages.base import code_of

PART = r"^[A-Za-z0-9][A-Za-z0-9_.:/@-]{0,63}$"
SHOWN = 200  # characters of foreign text in a note

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
Kind = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]
Part = Annotated[str, Field(pattern=PART)]
Seconds = Annotated[float, Field(ge=0, le=LAST_TIME / 10, allow_inf_nan=False)]
Period = Annotated[float, Field(gt=0, le=86400, allow_inf_nan=False)]


def _string(value: object) -> object:
    return value.value if isinstance(value, Severity | Subject) else value


NodeSeverity = Annotated[Literal["note", "suspect"], BeforeValidator(_string)]  # a node's detector cannot declare a worker lost
NodeSubject = Annotated[Literal["node", "device", "link"], BeforeValidator(_string)]


class Configured(BaseModel):
    """A model that refuses unknown fields and is immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)


M = TypeVar("M", bound=BaseModel)


def read(model: type[M], found: Mapping[str, Any]) -> M:
    """Create a `model` from plain values, as in TOML or JSON. Raises `ValueError` with one line for each mistake."""
    try:
        return model.model_validate(found)
    except ValidationError as error:
        found_wrong = error.errors(include_url=False, include_context=False)
        places = [item["loc"] for item in found_wrong]
        # A list with an invalid item is reported as too short as well.
        first = [item for item in found_wrong if item["type"] != "too_short" or not any(_within(place, item["loc"]) for place in places)]
        raise ValueError("\n".join(map(problem, first))) from None


def _within(place: tuple[int | str, ...], other: tuple[int | str, ...]) -> bool:
    return len(place) > len(other) and place[: len(other)] == other


def problem(item: Mapping[str, Any]) -> str:
    """Describe one of pydantic's errors, without the value, which may be long or secret. A message of our own keeps its code, after the
    field.
    """
    where = plain(".".join(map(str, item["loc"])))[:SHOWN]
    place, words = f"{where}: " if where else "", plain(item["msg"].removeprefix("Value error, "))[:SHOWN]
    if item["type"] == "extra_forbidden":
        return detector_files.UNKNOWN_SETTING(name=where)
    if item["type"] == "missing":
        return detector_files.MISSING_SETTING(name=where)
    if code_of(words):
        return place + words
    return detector_files.BAD_SETTING(place=place, problem=f"{words[:1].lower()}{words[1:]}" if where else words)


def first_line(text: str) -> str:
    """Return the first non-empty line, without control sequences for terminals, cut to a readable length."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    shown = plain(line[: SHOWN + 1])
    return shown if len(shown) <= SHOWN else f"{shown[: SHOWN - 3]}..."
