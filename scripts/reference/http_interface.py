"""http.md and json.md: the requests of the orchestrator and the objects in them, from its OpenAPI description and its WebSockets."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any, cast

from fastapi import FastAPI
from scripts.reference.markdown import anchor, code, paragraphs, sentence, table
from starlette.routing import WebSocketRoute

from understudy.orchestrator import sockets
from understudy.orchestrator.api import DESCRIPTION, create_app
from understudy.orchestrator.cluster import Cluster
from understudy.orchestrator.jobs import Jobs
from understudy.orchestrator.problems import MEANING
from understudy.orchestrator.quorum.transport import PATH, Front
from understudy.orchestrator.security import Access

ORDER = ("path", "query", "header")
USUAL = ("401", "403", "413", "429")  # answers that every request with a token may get
LIMITS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} character{s}",
    "maxLength": "at most {} characters",
    "minItems": "at least {} item{s}",
    "maxItems": "at most {} items",
    "pattern": "`{}`",
}


def app() -> FastAPI:
    """The interface of a service, which has all paths. Nothing is served for it."""
    return create_app(cast(Jobs, None), Access(["secret"]), cast(Cluster, object()))


def describe() -> dict[str, Any]:
    """Its OpenAPI description."""
    return app().openapi()


def pages() -> dict[str, str]:
    description = describe()
    return {"http.md": "\n".join(requests(description)), "json.md": "\n".join(objects(description))}


def requests(description: dict[str, Any]) -> Iterator[str]:
    """http.md: a table of the requests, a section for each, and the WebSockets."""
    operations = [(path, method, what) for path, methods in description["paths"].items() for method, what in methods.items()]
    yield from ("# HTTP", "", "The HTTP interface of an orchestrator, for people and programs.", "", *paragraphs(DESCRIPTION), "")
    yield from EXAMPLE.splitlines()
    rows = (
        [
            f"[{code(f'{method.upper()} {path}')}](#{anchor(f'{method} {path}')})",
            _role(what) or "-",
            sentence(what["description"]).rstrip("."),
        ]
        for path, method, what in operations
    )
    yield from ("", "## Requests", "", *table(["request", "role", "purpose"], rows))
    yield from ("", "Any request with a token may fail with 401, 403, 413 or 429; the sections below list the other errors.", "")
    yield from table(["error", "meaning"], ([str(status), meaning] for status, meaning in MEANING.items()))
    for path, method, what in operations:
        yield from ("", f"### {method.upper()} {path}", "", *_operation(what))
    yield from ("", *_websockets())


OBJECTS = """
The objects of the [HTTP interface](http.md). `--json` of `understudy status`, `report`, `jobs` and `nodes` prints the same:
[Status](#status), [StateTable](#statetable), [TopologyTable](#topologytable), [Report](#report), [JobLine](#jobline) and
[NodeLine](#nodeline).

In the body of a request, only the fields that are marked *required* must be present. An answer has every field. Later versions may add
fields, so ignore those that you do not know.
"""
EXAMPLE = """\
For example, in the folder of a running job:

```
run=$(ls -td understudy-runs/* | head -1)
url=$(python -c 'import json, sys; print(json.load(sys.stdin)["url"])' < $run/orchestrator.json)
curl -s -H "Authorization: Bearer $(cat $run/token)" "$url/v1/jobs/-/status"
```

In paths, `{job}` is the name of the job, and `{node}` that of the node. An orchestrator that was started with `understudy run` has one
job, and `-` stands for its name."""


def _role(what: dict[str, Any]) -> str:
    role = what.get("x-role")
    return ", ".join(role) if isinstance(role, list) else role or ""


def _operation(what: dict[str, Any]) -> Iterator[str]:
    yield from paragraphs(what["description"].replace("\n\n", " "))
    parameters = sorted(what.get("parameters", ()), key=lambda parameter: ORDER.index(parameter["in"]))
    rows = (
        [code(one["name"]), one["in"], _type(one["schema"]), f"{one.get('description', '')}{_limits(one['schema'])}"]
        for one in parameters
        if one["in"] != "path"
    )
    if shown := table(["parameter", "in", "type", "meaning"], rows):
        yield from ("", *shown)
    facts = [f"Role: {code(role)}." for role in [_role(what)] if role]
    if body := what.get("requestBody"):
        facts.append(f"Body: {_content(body['content'])}.")
    for status, answer in sorted(what["responses"].items()):
        if status < "300":
            facts.append(f"Answer: {status}, {_content(answer.get('content', {}))}.")
    refusals = [status for status in sorted(what["responses"]) if status >= "300" and status not in USUAL]
    if refusals:
        facts.append(f"Errors: {', '.join(refusals)}.")
    yield from ("", *paragraphs(" ".join(facts)))


def _websockets() -> Iterator[str]:
    about = inspect.cleandoc(sockets.__doc__ or "").partition("\n\n")[2]
    found = {route.path: route.endpoint.__doc__ or "" for route in app().routes if isinstance(route, WebSocketRoute)}
    found[PATH] = Front._hear.__doc__ or ""
    yield from ("## WebSockets", "", *paragraphs(about), "")
    yield from table(["path", "connection"], ([code(path), text] for path, text in found.items()))


def objects(description: dict[str, Any]) -> Iterator[str]:
    """json.md: a section for each schema."""
    schemas = description["components"]["schemas"]
    operations = [what for methods in description["paths"].values() for what in methods.values()]
    sent = _referred([what.get("requestBody", {}) for what in operations], schemas)
    yield from ("# JSON objects", "", *paragraphs(OBJECTS))
    for name, schema in sorted(schemas.items()):
        yield from ("", f"## {name}", "", *paragraphs(schema["description"]), "")
        if "enum" in schema:
            yield f"One of {', '.join(code(value) for value in schema['enum'])}."
            continue
        base = _base(name, schemas)
        known = schemas[base]["properties"] if base else {}
        if base:
            yield from (f"All fields of [{base}](#{anchor(base)}), and:", "")
        yield from table(
            ["field", "type", "meaning"], (_field(schema, key, name in sent) for key in schema["properties"] if key not in known)
        )


def _base(name: str, schemas: dict[str, Any]) -> str:
    """The largest other schema all of whose fields this one has, in the same way; "" if there is none."""
    own = schemas[name].get("properties", {})
    smaller = {other: schema.get("properties", {}) for other, schema in schemas.items() if schema.get("properties", {}).keys() < own.keys()}
    found = [
        other
        for other, fields in smaller.items()
        if all(own[key] == value for key, value in fields.items()) and (len(fields) > 1 or (fields and other in name))
    ]
    return max(found, key=lambda other: len(smaller[other]), default="")


def _field(schema: dict[str, Any], name: str, sent: bool) -> list[str]:
    """`sent`: the object is in a body, so bounds and defaults matter."""
    field = schema["properties"][name]
    if not field.get("description"):
        raise ValueError(f"{schema['title']}.{name} has no description: give it one, as Field(description=...)")
    required = ", required" * (sent and name in schema.get("required", ()))
    return [code(name), _type(field, "") + required, f"{field['description']}{_limits(field) if sent else ''}"]


def _referred(part: Any, schemas: dict[str, Any]) -> set[str]:
    """Names of the schemas that `part` refers to, and so on."""
    if isinstance(part, dict) and "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        return {name} | _referred(schemas[name], schemas)
    inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return set().union(*(_referred(one, schemas) for one in inner))


def _content(content: dict[str, Any]) -> str:
    found = [_type(what["schema"]) if "json" in media else code(media) for media, what in content.items()]
    return " or ".join(found) or "nothing"


def _type(schema: dict[str, Any], page: str = "json.md") -> str:
    """As a reader of JSON would call it. `page`: where the objects are described."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}]({page}#{anchor(name)})"
    if "anyOf" in schema:
        return " or ".join(_type(one, page) for one in schema["anyOf"])
    if schema.get("type") == "array":
        return f"array of {_type(schema['items'], page)}"
    if schema.get("type") == "object":
        values = [schema["additionalProperties"]] if isinstance(schema.get("additionalProperties"), dict) else []
        values += schema.get("patternProperties", {}).values()
        return f"object of {_type(values[0], page)}" if values else "object"
    return str(schema.get("type", "anything"))


def _limits(schema: dict[str, Any]) -> str:
    """Bounds and default, to follow the meaning."""
    bounds = {**schema, **next((one for one in schema.get("anyOf", ()) if one.get("type") != "null"), {})}
    found = _bounds(bounds)
    for one in (bounds.get("items", {}), *bounds.get("patternProperties", {}).values()):
        found += [f"each {bound}" for bound in _bounds(one)]
    if schema.get("default") is not None:
        found.append(f"default `{json.dumps(schema['default'])}`")
    return f" ({'; '.join(found)})" if found else ""


def _bounds(schema: dict[str, Any]) -> list[str]:
    return [text.format(_number(schema[key]), s="s" * (schema[key] != 1)) for key, text in LIMITS.items() if key in schema]


def _number(value: Any) -> str:
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)
