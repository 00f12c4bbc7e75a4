"""The schema of the resource (`deploy/kubernetes/crd.yaml`) against what reads it (`resource.py`) and what writes its status."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import annotated_types
import jsonschema
import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from tests.kustomize import KUBERNETES, Object, documents
from tests.message_texts import refused
from tests.schedulers.kubernetes import objects
from tests.schedulers.kubernetes.objects import job, resource
from tests.schedulers.kubernetes.schema import closed, defaulted

from understudy.messages import kubernetes_jobs
from understudy.messages.base import Message
from understudy.schedulers.kubernetes import job_status, names
from understudy.schedulers.kubernetes.resource import OVER, Evidence, Job, Spec

CRD = documents(KUBERNETES / "crd.yaml")[0]
(VERSION,) = CRD["spec"]["versions"]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]
SPEC, STATUS = SCHEMA["properties"]["spec"], SCHEMA["properties"]["status"]
TYPES = {int: "integer", float: "number", bool: "boolean", str: "string"}
LEAST: Object = {"pods": 2, "template": {"spec": {"containers": [{"name": "w", "image": "i"}]}}}


def parts(model: type[BaseModel], schema: Object, place: str) -> Iterator[tuple[str, FieldInfo, Object]]:
    """Every field of every part, with its schema."""
    fields = {str(info.alias): info for info in model.model_fields.values()}
    assert fields.keys() == schema["properties"].keys(), place
    assert {alias for alias, info in fields.items() if info.is_required()} == set(schema.get("required", [])), place
    for alias, info in fields.items():
        found = schema["properties"][alias]
        yield f"{place}.{alias}", info, found
        inner, items = _kind(info.annotation), _item(info.annotation)
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from parts(inner, found, f"{place}.{alias}")
        if isinstance(items, type) and issubclass(items, BaseModel):
            yield from parts(items, found["items"], f"{place}.{alias}[]")


def _kind(annotation: Any) -> Any:
    """Return the object without fields that are None because they were not given."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        (annotation,) = [each for each in typing.get_args(annotation) if each is not types.NoneType]
    return annotation


def _item(annotation: Any) -> Any:
    return typing.get_args(annotation)[0] if typing.get_origin(annotation) is tuple else None


FIELDS = list(parts(Spec, SPEC, "spec"))


def test_it_is_called_as_the_code_calls_it() -> None:
    spec = CRD["spec"]
    assert (spec["group"], VERSION["name"]) == (names.GROUP, names.VERSION)
    assert (spec["names"]["kind"], spec["names"]["plural"], spec["names"]["shortNames"]) == (names.KIND, names.PLURAL, ["usj"])
    assert CRD["metadata"]["name"] == f"{names.PLURAL}.{names.GROUP}"
    name = SCHEMA["properties"]["metadata"]["properties"]["name"]
    assert (name["maxLength"], name["pattern"]) == (40, f"^{names.JOB.pattern}$")


@pytest.mark.parametrize(("place", "info", "schema"), FIELDS, ids=[place for place, _, _ in FIELDS])
def test_a_field_s_type_and_bounds(place: str, info: FieldInfo, schema: Object) -> None:
    kind, item = _kind(info.annotation), _item(info.annotation)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        assert schema["enum"] == [str(value) for value in kind]
        kind = str
    assert schema["type"] == ("array" if item is not None else TYPES.get(kind, "object"))
    if item in TYPES:
        assert schema["items"] == {"type": TYPES[item]}
    bounds: Object = {}
    for bound in info.metadata:
        if isinstance(bound, annotated_types.Ge | annotated_types.Gt):
            bounds["minimum"] = bound.ge if isinstance(bound, annotated_types.Ge) else bound.gt
        if isinstance(bound, annotated_types.Gt):
            bounds["exclusiveMinimum"] = True
        if isinstance(bound, annotated_types.Le):
            bounds["maximum"] = bound.le
        if isinstance(bound, annotated_types.MaxLen):
            bounds["maxLength"] = bound.max_length
    assert {key: schema[key] for key in ("minimum", "exclusiveMinimum", "maximum", "maxLength") if key in schema} == bounds
    assert place.startswith("spec.evidence.conditions[]") or schema.get("description"), f"{place} is not described"


@pytest.mark.parametrize("given", [{}, {"spares": {"floating": {}}, "evidence": {"conditions": [{"type": "X"}]}, "timeouts": {"hang": 9}}])
def test_defaults(given: Object) -> None:
    """What is empty has none."""
    read = Spec.model_validate(LEAST | given).model_dump(mode="json", by_alias=True, exclude_none=True)
    assert defaulted(SPEC, LEAST | given) == full(read)


def full(value: Any) -> Any:
    return {key: full(each) for key, each in value.items() if each != ""} if isinstance(value, dict) else value


def test_every_rule_is_enforced_by_the_controller_too_or_is_about_a_change() -> None:
    """What a rule of one object refuses, `Job.of` refuses: older servers do not know these rules."""
    rules = [rule["rule"] for schema in (SPEC, *(found for _, _, found in FIELDS)) for rule in schema.get("x-kubernetes-validations", [])]
    assert len([rule for rule in rules if rule != "self == oldSelf"]) == len(REFUSED)
    assert rules.count("self == oldSelf") == 6
    for spec, message in REFUSED:
        with refused(ValueError, message):
            Job.of(resource(**spec))


REFUSED: list[tuple[Object, Message]] = [
    ({"spares": {"pods": 1, "prepared": 2}}, kubernetes_jobs.TOO_MANY_PREPARED),
    ({"timeouts": {"heartbeat": 1.5}}, kubernetes_jobs.BAD_TIMEOUTS),
    ({"timeouts": {"hang": 20, "setUp": 10}}, kubernetes_jobs.BAD_TIMEOUTS),
    ({"timeouts": {"nodeLost": 80, "hang": 20, "setUp": 30}}, kubernetes_jobs.BAD_TIMEOUTS),
    ({"timeouts": {"hang": 0.1}}, kubernetes_jobs.BAD_TIMEOUTS),
]


@pytest.mark.parametrize("name", ["a" * 41, "1a", "a.b", "a_b", "A", "a-", ""])
def test_names_that_no_pod_could_have_are_refused(name: str) -> None:
    given = resource()
    with refused(ValueError, kubernetes_jobs.BAD_NAME):
        Job.of(given | {"metadata": given["metadata"] | {"name": name}})


@pytest.mark.parametrize("template", [{}, {"spec": {}}, {"spec": {"containers": []}}, {"spec": {"containers": ["x"]}}])
def test_templates_without_a_container_are_refused(template: Object) -> None:
    with refused(ValueError, kubernetes_jobs.NO_CONTAINER):
        Job.of(resource(template=template))


def test_what_is_written_into_the_status_is_declared() -> None:
    validator = jsonschema.Draft202012Validator(closed(STATUS))
    for ranks in (("gpt-0", ""), ()):
        for code in (None, 0, 1):
            written = job_status.status(objects.summary(ranks, code), job(), {"gpt-9": {"spec": {"nodeName": "w1"}}}, 1e9)
            kept = {key: value for key, value in written.items() if value is not None}  # in a merge patch, None takes away
            validator.validate(kept)
    validator.validate({"nextNumber": 5, "podRestarts": 1})  # the controller's (`controller.py`)
    assert {*job_status.PHASES.values(), *OVER} == set(STATUS["properties"]["phase"]["enum"])
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({"other": 1})


def test_evidence_of_the_schema_is_read_as_it_is_meant() -> None:
    assert Evidence.model_validate(defaulted(SPEC["properties"]["evidence"], {})) == Evidence()
