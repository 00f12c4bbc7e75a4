"""Fetch what Prometheus servers and exporters answer, as series: within a time and a size, and without trusting any of it.

A request has one limit for all of it, however slowly the answer arrives, and an answer is cut at `most` bytes while it arrives; it is not
decompressed, and redirections are not followed, so the token is sent only to the configured server.

Known limits. An answer of an instant query may be as old as the server's look-back (5 minutes): rules of the server are the place for what
must be newer. Of an exporter's page only lines that begin with the wanted name are read, by the parser of `prometheus_client`: names that
are written as labels (UTF-8 names in quotes) are not found, and native histograms are left out. A name server that does not answer delays
a look for as long as the resolver waits, beyond the limit.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import httpx
from prometheus_client.parser import text_string_to_metric_families
from pydantic import BaseModel, Field, ValidationError

from understudy.detectors.configuration import first_line, problem
from understudy.messages import prometheus

AT_ONCE = 16  # requests
MOST_SERIES = 10_000  # of one rule in one answer
MOST_LINE = 1 << 14  # bytes; the parser's time grows with the square of a line's length
MOST_TOKEN = 1 << 14


class Unusable(Exception):
    """There is no answer, or none that can be used; the text gives the reason, for a person."""


@dataclass(frozen=True)
class Series:
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Request:
    url: str
    query: str = ""  # PromQL; "": fetch the page itself
    token_file: str = ""
    ca_file: str = ""
    limit: float = 5.0  # seconds
    most: int = 1 << 22  # bytes


async def fetch(requests: Iterable[Request]) -> list[bytes | Unusable]:
    """Fetch all requests; return the body of each answer, in order."""
    free = asyncio.Semaphore(AT_ONCE)

    async def one(request: Request) -> bytes | Unusable:
        async with free:
            try:
                return await _fetch(request)
            except Unusable as error:
                return error

    return await asyncio.gather(*map(one, requests))


async def _fetch(request: Request) -> bytes:
    headers = {"Accept-Encoding": "identity"}
    if request.token_file:
        headers["Authorization"] = f"Bearer {_token(request.token_file)}"
    parameters = {"query": request.query} if request.query else None
    try:
        trust = ssl.create_default_context(cafile=request.ca_file or None) if request.url.startswith("https:") else True
    except OSError as error:  # including ssl.SSLError
        raise Unusable(prometheus.BAD_CA_FILE(reason=error.strerror or type(error).__name__)) from None
    try:
        async with (
            asyncio.timeout(request.limit),
            # Not through a proxy: that is for hosts outside the cluster.
            httpx.AsyncClient(verify=trust, trust_env=False, timeout=None) as client,
            client.stream("GET", request.url, params=parameters, headers=headers) as answer,
        ):
            body = await _body(answer, request.most)
    except TimeoutError:
        raise Unusable(prometheus.TOO_SLOW(seconds=request.limit)) from None
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError, ValueError) as error:
        raise Unusable(prometheus.NOT_REACHED(kind=type(error).__name__, reason=first_line(str(error)))) from None
    if answer.status_code != 200:
        raise Unusable(prometheus.BAD_STATUS(status=answer.status_code, reason=_reason(body)))
    return body


async def _body(answer: httpx.Response, most: int) -> bytes:
    if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise Unusable(prometheus.COMPRESSED())
    body = bytearray()
    async for block in answer.aiter_raw():
        if len(body) + len(block) > most:
            raise Unusable(prometheus.TOO_LONG(most=most))
        body += block
    return bytes(body)


def _token(file: str) -> str:
    """Read the token, each time: tokens are replaced."""
    try:
        with Path(file).open("rb") as opened:
            token = opened.read(MOST_TOKEN + 1).strip()
    except OSError as error:
        raise Unusable(prometheus.BAD_TOKEN_FILE(reason=error.strerror or type(error).__name__)) from None
    if not 0 < len(token) <= MOST_TOKEN or not all(33 <= byte < 127 for byte in token):
        raise Unusable(prometheus.NO_TOKEN())
    return token.decode()


# -- a server's answer ------------------------------------------------------------------------------------------------


class _Sample(BaseModel):
    metric: dict[str, str]
    value: tuple[float, str] | None = None  # None for a native histogram


class _Data(BaseModel):
    resultType: Literal["vector"]
    result: Annotated[list[_Sample], Field(max_length=MOST_SERIES)]


class _Answer(BaseModel):
    status: Literal["success"]
    data: _Data


class _Refusal(BaseModel):
    errorType: str
    error: str


def _reason(body: bytes) -> str:
    try:
        refusal = _Refusal.model_validate_json(body, strict=True)
    except ValidationError:
        return ""
    return f": {first_line(refusal.errorType)}: {first_line(refusal.error)}"


def vector(body: bytes) -> list[Series]:
    """Parse an answer of /api/v1/query. Raises `Unusable`."""
    try:
        answer = _Answer.model_validate_json(body, strict=True)
    except ValidationError as error:
        wrong: Mapping[str, Any] = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise Unusable(prometheus.NO_VECTOR(problem=problem(wrong))) from None
    return [Series(sample.metric, _number(sample.value[1])) for sample in answer.data.result if sample.value is not None]


def _number(text: str | float) -> float:
    try:
        return float(text)
    except (ValueError, OverflowError):
        raise Unusable(prometheus.NO_NUMBER()) from None


# -- an exporter's page -----------------------------------------------------------------------------------------------


@dataclass
class Page:
    """The lines of an exporter's page, by the name of their metric."""

    lines: dict[str, list[str]] = field(default_factory=dict)

    @staticmethod
    def read(body: bytes, names: Iterable[str]) -> Page:
        """Parse a page. Raises `Unusable`."""
        try:
            text = body.decode()
        except UnicodeDecodeError:
            raise Unusable(prometheus.NO_UTF8()) from None
        lines: dict[str, list[str]] = {name: [] for name in names}
        for line in text.split("\n"):
            name = line.lstrip().partition("{")[0].partition(" ")[0].partition("\t")[0]
            if name in lines:
                lines[name].append(line)
        return Page(lines)

    def series(self, name: str) -> list[Series]:
        """Return all series of a metric; none if it is not on the page. Raises `Unusable`."""
        found = self.lines[name]
        if len(found) > MOST_SERIES:
            raise Unusable(prometheus.TOO_MANY_SERIES(most=MOST_SERIES, metric=name))
        return [series for line in found for series in _parsed(line, name)]


def _parsed(line: str, name: str) -> list[Series]:
    if len(line) > MOST_LINE:
        raise Unusable(prometheus.LINE_TOO_LONG(most=MOST_LINE, metric=name))
    try:
        # Line by line and without the type: the parser would rename counters.
        samples = [sample for family in text_string_to_metric_families(line) for sample in family.samples]
    except Exception:  # it has no error class, and some lines lead to errors other than ValueError
        raise Unusable(prometheus.BAD_LINE(metric=name)) from None
    return [Series(sample.labels, _number(sample.value)) for sample in samples if sample.name == name]
