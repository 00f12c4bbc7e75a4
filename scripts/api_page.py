"""Write the HTTP part of docs/reference/api.md from the interface's OpenAPI description, between two markers there.

`python scripts/api_page.py` rewrites it; with `--check` nothing is written, and the exit code is 1, after a diff, if it is stale.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.generated import ROOT, write

from understudy.orchestrator.api import create_app
from understudy.orchestrator.cluster import Cluster
from understudy.orchestrator.jobs import Jobs
from understudy.orchestrator.security import Access

PAGE = ROOT / "docs" / "reference" / "api.md"
ORDER = ("path", "query", "header")
LIMITS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "pattern": "`{}`",
}


def describe() -> dict[str, Any]:
    """Return the OpenAPI description of a service, which has all paths. Nothing is served for it."""
    return create_app(cast(Jobs, None), Access(["secret"]), cast(Cluster, object())).openapi()


def page(description: dict[str, Any]) -> str:
    """Return the page in Markdown: a table of the requests, a section for each, and one for each kind of value."""
    operations = [(path, method, what) for path, methods in description["paths"].items() for method, what in methods.items()]
    lines = ["| request | what it does |", "|---|---|"]
    lines += [
        f"| [{_name(path, method)}](#{_anchor(f'{method} {path}')}) | {_first(what['description'])} |" for path, method, what in operations
    ]
    for path, method, what in operations:
        lines += ["", f"### {method.upper()} {path}", "", *_operation(what)]
    lines += ["", "### Values", "", "As JSON. A body may leave out what is not required; an answer has every field."]
    schemas = description["components"]["schemas"]
    sent = _sent([what.get("requestBody", {}) for _, _, what in operations], schemas)
    for name, schema in sorted(schemas.items()):
        values = [f"One of {', '.join(f'`{value}`' for value in schema['enum'])}."] if "enum" in schema else []
        lines += ["", f"#### {name}", "", _sentence(schema["description"]), "", *(values or _fields(schema, sent=name in sent))]
    return "\n".join(lines)


def _sent(part: Any, schemas: dict[str, Any]) -> set[str]:
    """Return the names of the schemas that `part` refers to, directly or not: those of bodies."""
    if isinstance(part, dict) and "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        return {name} | _sent(schemas[name], schemas)
    inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return set().union(*(_sent(one, schemas) for one in inner))


def _operation(what: dict[str, Any]) -> Iterator[str]:
    yield _sentence(what["description"])
    role = what.get("x-role")
    if role:
        yield from ("", f"Role of the token: {', '.join(role) if isinstance(role, list) else role}.")
    parameters = sorted(what.get("parameters", ()), key=lambda parameter: ORDER.index(parameter["in"]))
    if parameters:
        yield from ("", "| parameter | in | type | meaning |", "|---|---|---|---|")
    for parameter in parameters:
        schema = parameter["schema"]
        yield f"| `{parameter['name']}` | {parameter['in']} | {_type(schema)} | {parameter.get('description', '')}{_limits(schema)} |"
    body = what.get("requestBody")
    if body:
        yield from ("", f"Body: {_content(body['content'])}.")
    yield from ("", "| status | answer |", "|---|---|")
    for status, answer in sorted(what["responses"].items()):
        text = "" if status < "300" else f": {answer['description']}"
        yield f"| {status} | {_content(answer.get('content', {}))}{text} |"


def _fields(schema: dict[str, Any], *, sent: bool) -> Iterator[str]:
    """Yield the rows of a table of fields. `sent`: they are a body's, so bounds and defaults matter."""
    yield from ("| field | type | meaning |", "|---|---|---|")
    for name, field in schema["properties"].items():
        kind = _type(field) + ", required" * (sent and name in schema.get("required", ()))
        if not field.get("description"):
            raise ValueError(f"{schema['title']}.{name} has no description: give it one, as Field(description=...)")
        yield f"| `{name}` | {kind} | {field['description']}{_limits(field) if sent else ''} |"


def _content(content: dict[str, Any]) -> str:
    found = [_type(what["schema"]) if "json" in media else f"`{media}`" for media, what in content.items()]
    return " or ".join(found) or "nothing"


def _type(schema: dict[str, Any]) -> str:
    """Return a type as a reader of JSON would call it."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{_anchor(name)})"
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if schema.get("type") == "array":
        return f"array of {_type(schema['items'])}"
    if schema.get("type") == "object":
        values = [schema["additionalProperties"]] if isinstance(schema.get("additionalProperties"), dict) else []
        values += schema.get("patternProperties", {}).values()
        return f"object of {_type(values[0])}" if values else "object"
    return str(schema.get("type", "anything"))


def _limits(schema: dict[str, Any]) -> str:
    """Return bounds and default, to append to the meaning."""
    bounds = {**schema, **next((one for one in schema.get("anyOf", ()) if one.get("type") != "null"), {})}
    found = _bounds(bounds)
    for one in (bounds.get("items", {}), *bounds.get("patternProperties", {}).values()):
        found += [f"each {bound}" for bound in _bounds(one)]
    if schema.get("default") is not None:
        found.append(f"default `{json.dumps(schema['default'])}`")
    return f" ({'; '.join(found)})".replace("|", "\\|") if found else ""


def _bounds(schema: dict[str, Any]) -> list[str]:
    return [text.format(_number(schema[key])) for key, text in LIMITS.items() if key in schema]


def _number(value: Any) -> str:
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)


def _name(path: str, method: str) -> str:
    return f"`{method.upper()} {path}`"


def _anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return "".join(c for c in heading.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def _first(text: str) -> str:
    """Return the first sentence."""
    return _sentence(text).partition(". ")[0].rstrip(".")


def _sentence(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    sys.exit(write("scripts/api_page.py", PAGE, lambda: page(describe()), __doc__))
