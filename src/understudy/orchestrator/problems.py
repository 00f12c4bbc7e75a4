"""Errors of the HTTP API, as problem details (RFC 9457)."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from understudy.messages import http_requests
from understudy.messages.base import code_of

MEDIA_TYPE = "application/problem+json"
RESPONSE: dict[str, object] = {"description": "why not", "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
SCHEMA = {
    "title": "Problem",
    "description": "Why a request was refused (RFC 9457, `application/problem+json`).",
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "description": "always `about:blank`"},
        "title": {"type": "string", "description": "the status in words"},
        "status": {"type": "integer", "description": "the status of the answer"},
        "detail": {"type": "string", "description": "what is wrong, and what to do; it begins with the code of the message"},
        "code": {"type": "string", "pattern": "^US[0-9]{4}$", "description": "code of the message; `understudy explain` explains it"},
    },
}
MEANING = {
    400: "the request cannot be parsed",
    401: "no valid token",
    403: "the token may not do this",
    404: "there is no such job or node",
    409: "the request is not possible for this job or node, or not now; `detail` gives the reason",
    413: "the body is too long",
    422: "a value is missing or not valid; `detail` names it",
    429: "too many requests",
    503: "the orchestrator cannot serve the request at the moment; `detail` gives the reason",
}


def problem(status: int, detail: str, headers: dict[str, str] | None = None) -> JSONResponse:
    content = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    code = code_of(detail)
    return JSONResponse({**content, "code": code} if code else content, status, headers, MEDIA_TYPE)


def describe(description: dict[str, Any]) -> None:
    """Add the schema of problems, and the meaning of each status, to an OpenAPI description."""
    description.setdefault("components", {}).setdefault("schemas", {})["Problem"] = SCHEMA
    for path in description["paths"].values():
        for operation in path.values():
            for status, response in operation["responses"].items():
                if MEDIA_TYPE in response.get("content", {}):
                    response["description"] = MEANING.get(int(status)) or HTTPStatus(int(status)).phrase


def install(app: FastAPI) -> None:
    """Turn every error of the app into a problem."""

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> JSONResponse:
        detail = error.detail if code_of(error.detail) else http_requests.NOT_SERVED(detail=error.detail)
        return problem(error.status_code, detail, dict(error.headers or {}))

    @app.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> JSONResponse:
        what = "; ".join(f"{'.'.join(map(str, part['loc']))}: {part['msg']}" for part in error.errors())
        return problem(422, http_requests.MALFORMED(problems=what))
