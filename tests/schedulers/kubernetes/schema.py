"""What an API server makes of the schema of a resource: what is not given gets its default, what is not declared does not stay."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def defaulted(schema: Object, value: Any) -> Any:
    """As an API server fills in what is not given."""
    if isinstance(value, dict):
        found = dict(value)
        for key, inner in schema.get("properties", {}).items():
            if key not in found and "default" in inner:
                found[key] = inner["default"]
            if key in found:
                found[key] = defaulted(inner, found[key])
        return found
    return [defaulted(schema["items"], each) for each in value] if isinstance(value, list) and "items" in schema else value


def closed(schema: Object) -> Object:
    """For a validator: what is not declared is refused; of two forms of a bound it has the newer one."""
    found = {key: value for key, value in schema.items() if key != "exclusiveMinimum"}
    if schema.get("exclusiveMinimum"):
        found["exclusiveMinimum"] = found.pop("minimum")
    if "properties" in schema:
        found["properties"] = {key: closed(value) for key, value in schema["properties"].items()}
        found["additionalProperties"] = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    if "items" in schema:
        found["items"] = closed(schema["items"])
    if schema.get("nullable"):
        found["type"] = [schema["type"], "null"]
    return found
