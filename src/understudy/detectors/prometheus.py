"""Judge metrics of Prometheus servers and exporters by rules: a rule names the number, its limit, and the node or part that it is about.

Runs at the host of the orchestrator. A rule queries the server (`query`, in PromQL), or reads a metric on the exporters' pages (`sample`)
where there is no server or its answers come too late. A series that compares as the rule requires, in every look for as long as `for`, is
evidence against the node that its labels name.

What cannot be fetched or read counts against no node: a server that is down, slow, or answers something else is a note about this detector,
and what was true before is still true in the next look, unless nothing could be seen for `PATIENCE` looks. A value that is not a number is
ignored, and so is a series of a node without a worker of the job.

Labels. The node is the label that the rule names; otherwise `Hostname`, as the DCGM exporter has it, else `instance` without its port. On a
page the instance is the page's own host and port, as Prometheus would add it, unless the configuration names the page's `node`. The part is
the label that the rule names, else `gpu` ("3" is "gpu3"), else `device`.

Known limits. A user who may write to a page or to the server can accuse any node, except on a page with `node`. Label matchers of `sample`
are equal or not equal; for more than that query a server. Pages are fetched a few at a time (`AT_ONCE`): hundreds of nodes are better
watched through a server.
"""

from __future__ import annotations

import asyncio
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import Field, field_validator, model_validator

from understudy.detectors.base import Detector, Evidence, JobView, Severity, Subject
from understudy.detectors.configuration import PART, Configured, Kind, Name, NodeSeverity, NodeSubject, Period, Seconds, first_line
from understudy.detectors.labels import PART_LABELS, first_of, part_of, without_port
from understudy.detectors.prometheus_answers import Page, Request, Series, Unusable, fetch, vector
from understudy.messages import prometheus

PATIENCE = 3  # looks in which nothing could be seen before `for` starts again
MOST = 900  # pieces of evidence per look
NODE_LABELS = ("Hostname", "instance")
_COMPARED: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}

Label = Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]{0,127}$")]
Matchers = dict[Label, Annotated[str, Field(max_length=1024)]]


class Server(Configured):
    """A server, and the credentials for it."""

    url: Annotated[str, Field(max_length=2048)]
    token_file: str = ""  # a bearer token
    ca_file: str = ""  # trusted certificates; "": those that the host trusts
    limit: Annotated[Period, Field(le=300)] = 5.0  # seconds for a request and its whole answer
    most: Annotated[int, Field(gt=0, le=1 << 26)] = 1 << 22  # bytes of an answer

    @field_validator("url")
    @classmethod
    def _can_be_asked(cls, url: str) -> str:
        parts = _split(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(prometheus.URL_WITHOUT_SCHEME())
        if parts.username is not None or parts.password is not None:
            raise ValueError(prometheus.URL_WITH_PASSWORD())
        if parts.fragment or not url.isprintable() or " " in url:
            raise ValueError(prometheus.URL_WITH_OTHERS())
        return url

    @model_validator(mode="after")
    def _safe(self) -> Server:
        parts = urlsplit(self.url)
        if self.token_file and parts.scheme != "https" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
            raise ValueError(prometheus.TOKEN_IN_THE_CLEAR())
        if self.ca_file and parts.scheme != "https":
            raise ValueError(prometheus.CA_WITHOUT_TLS())
        return self

    @property
    def shown(self) -> str:
        """Return the URL for a person; the part after a "?" may be secret."""
        return urlsplit(self.url)._replace(query="").geturl()

    @property
    def instance(self) -> str:
        """Return the instance as Prometheus would call it."""
        parts = urlsplit(self.url)
        return parts.netloc if parts.port else f"{parts.netloc.rstrip(':')}:{443 if parts.scheme == 'https' else 80}"

    def request(self, path: str = "", query: str = "") -> Request:
        url = self.url.rstrip("/") + path if path else self.url
        return Request(url, query, self.token_file, self.ca_file, self.limit, self.most)


class Exporter(Server):
    """One page of metrics, such as http://node7:9400/metrics."""

    node: str = ""  # its node, whatever its labels are


class Rule(Configured):
    name: Name
    query: Annotated[str, Field(min_length=1, max_length=8192)] | None = None  # PromQL, for the server
    sample: Annotated[str, Field(pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]{0,255}$")] | None = None  # a metric's name, for the pages
    labels: Matchers = Field({})  # that a series of `sample` must have
    labels_not: Matchers = Field({})  # that it must not have
    compare: Literal[">", ">=", "<", "<=", "==", "!="]
    number: Annotated[float, Field(allow_inf_nan=False)]
    for_: Seconds = Field(0.0, alias="for")  # how long it must be true
    subject: NodeSubject = "node"
    severity: NodeSeverity = "suspect"
    kind: Kind
    node_label: Label | None = None
    part_label: Label | None = None
    until: Seconds = 0.0  # seconds after the last look for which it is valid; 0: it does not wear off

    @model_validator(mode="after")
    def _consistent(self) -> Rule:
        if (self.query is None) == (self.sample is None):
            raise ValueError(prometheus.QUERY_OR_SAMPLE())
        if self.query is not None and (self.labels or self.labels_not):
            raise ValueError(prometheus.LABELS_OF_A_QUERY())
        if self.subject == "node" and self.part_label is not None:
            raise ValueError(prometheus.PART_OF_A_NODE())
        return self

    def fits(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels match the rule. A label that is missing is empty, as in PromQL."""
        return all(labels.get(label, "") == value for label, value in self.labels.items()) and not any(
            labels.get(label, "") == value for label, value in self.labels_not.items()
        )

    def fires(self, value: float) -> bool:
        return not math.isnan(value) and _COMPARED[self.compare](value, self.number)


class PrometheusSettings(Configured):
    every: Period = 15.0  # seconds between two looks
    server: Server | None = None
    exporters: Annotated[tuple[Exporter, ...], Field(max_length=1024)] = ()
    rules: Annotated[tuple[Rule, ...], Field(min_length=1, max_length=200)]
    nodes: dict[str, str] = Field({})  # a label's value, with or without its port: the job's name of that node

    @model_validator(mode="after")
    def _consistent(self) -> PrometheusSettings:
        names = [rule.name for rule in self.rules]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(prometheus.TWO_RULES(rule=twice[0]))
        if self.server is not None and urlsplit(self.server.url).query:
            raise ValueError(prometheus.URL_WITH_QUERY())
        if self.server is None and any(rule.query for rule in self.rules):
            raise ValueError(prometheus.NO_SERVER())
        if not self.exporters and any(rule.sample for rule in self.rules):
            raise ValueError(prometheus.NO_EXPORTERS())
        return self


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ValueError(prometheus.NO_URL()) from None
    return parts


@dataclass(frozen=True)
class _Seen:
    """A series that was true in the last look that saw it."""

    since: float  # unix time
    last: float


_Key = tuple[str, str, frozenset[tuple[str, str]]]  # the rule, the server or page, the labels


class Prometheus(Detector):
    """Query servers and pages, and judge their answers. All times are the job's."""

    name = "prometheus"

    def __init__(self, settings: PrometheusSettings) -> None:
        """Prepare the detector; nothing is queried yet."""
        self.every = settings.every
        self._settings = settings
        self._seen: dict[_Key, _Seen] = {}

    def look(self, job: JobView) -> list[Evidence]:
        look = _Look(self._settings, job, self._seen)
        queries = [rule for rule in self._settings.rules if rule.query is not None]
        server, pages = self._settings.server, self._settings.exporters if any(rule.sample for rule in self._settings.rules) else ()
        asked = [server.request("/api/v1/query", rule.query or "") for rule in queries] if server is not None else []
        bodies = asyncio.run(fetch([*asked, *(page.request() for page in pages)]))
        if server is not None:
            for rule, body in zip(queries, bodies, strict=False):
                look.answer(server, rule, body)
        look.pages(list(zip(pages, bodies[len(asked) :], strict=True)))
        self._seen = look.seen
        return look.evidence()


class _Look:
    """One look: what was seen before, and what is seen now."""

    def __init__(self, settings: PrometheusSettings, job: JobView, before: Mapping[_Key, _Seen]) -> None:
        self._settings = settings
        self._now = job.now
        self._here = set(job.nodes.values())
        self._before = before
        self._read: set[tuple[str, str]] = set()  # rules, and the servers or pages where they could be judged
        self._now_seen: dict[_Key, _Seen] = {}
        self._found: dict[tuple[str, str, str], Evidence] = {}  # by rule, node and part: one is enough
        self._notes: dict[tuple[str, str], Evidence] = {}

    @property
    def seen(self) -> dict[_Key, _Seen]:
        """Return what to remember for the next look: what could not be seen in this one is kept for a while."""
        oldest = self._now - PATIENCE * self._settings.every
        kept = {key: one for key, one in self._before.items() if key[:2] not in self._read and one.last >= oldest}
        return {**kept, **self._now_seen}

    def answer(self, server: Server, rule: Rule, body: bytes | Unusable) -> None:
        try:
            series = vector(_usable(body))
        except Unusable as error:
            self._note("prometheus-answer", rule.name, prometheus.NO_ANSWER(server=server.shown, rule=rule.name, reason=str(error)))
            return
        self._judge(rule, server.shown, "", series)

    def pages(self, answers: list[tuple[Exporter, bytes | Unusable]]) -> None:
        rules = [(rule, rule.sample) for rule in self._settings.rules if rule.sample is not None]
        absent = {rule.name: name for rule, name in rules}
        usable = 0
        for exporter, body in answers:
            try:
                page = Page.read(_usable(body), [name for _, name in rules])
            except Unusable as error:
                self._note("prometheus-page", exporter.url, prometheus.NO_PAGE(exporter=exporter.shown, reason=str(error)))
                continue
            usable += 1
            for rule, name in rules:
                try:
                    series = page.series(name)
                except Unusable as error:
                    absent.pop(rule.name, None)
                    words = prometheus.NO_PAGE_FOR_RULE(exporter=exporter.shown, rule=rule.name, reason=str(error))
                    self._note("prometheus-page", rule.name, words)
                    continue
                if series:
                    absent.pop(rule.name, None)
                fitting = [Series({"instance": exporter.instance, **one.labels}, one.value) for one in series if rule.fits(one.labels)]
                self._judge(rule, exporter.url, exporter.node, fitting)
        for rule_name, name in absent.items() if usable else ():
            self._note("prometheus-absent", rule_name, prometheus.ABSENT(metric=name, rule=rule_name))

    def _judge(self, rule: Rule, where: str, node: str, series: list[Series]) -> None:
        self._read.add((rule.name, where))
        for one in series:
            name, part = self._named(rule, node, one.labels)
            if not name or not rule.fires(one.value) or name not in self._here:
                continue
            key = rule.name, where, frozenset(one.labels.items())
            before = self._before.get(key)
            follows = before is not None and self._now - PATIENCE * self._settings.every <= before.last <= self._now
            since = before.since if before is not None and follows else self._now
            self._now_seen[key] = _Seen(since, self._now)
            if self._now - since >= rule.for_:
                self._tell(rule, name, part, one.value, since)

    def _named(self, rule: Rule, node: str, labels: Mapping[str, str]) -> tuple[str, str]:
        """Return the job's name of the node, and the part; an empty name if the labels name no node."""
        wanted = (rule.node_label,) if rule.node_label is not None else NODE_LABELS
        label, value = first_of(labels, wanted)
        if not node and not value:
            self._note("prometheus-labels", rule.name, prometheus.NO_NODE(rule=rule.name, labels=" or ".join(wanted)))
            return "", ""
        bare = without_port(value) if label == "instance" else value
        name = node or self._settings.nodes.get(value) or self._settings.nodes.get(bare, bare)
        if rule.subject == "node":
            return name, ""
        wanted = (rule.part_label,) if rule.part_label is not None else PART_LABELS
        part = part_of(*first_of(labels, wanted))
        if not re.fullmatch(PART, part):
            self._note("prometheus-labels", rule.name, prometheus.NO_PART(rule=rule.name, labels=" or ".join(wanted)))
            return "", ""
        return name, part

    def _tell(self, rule: Rule, node: str, part: str, value: float, since: float) -> None:
        what = prometheus.FOUND(
            rule=rule.name,
            value=value,
            compare=rule.compare,
            number=rule.number,
            lasting=f" for {self._now - since:.0f} s" if rule.for_ else "",
            expression=first_line(rule.query or rule.sample or ""),
        )
        until = self._now + rule.until if rule.until else 0.0
        evidence = Evidence("prometheus", Subject(rule.subject), node, Severity(rule.severity), what, since, rule.kind, part, until)
        known = self._found.get((rule.name, node, part))
        if known is None or since < known.happened:
            self._found[rule.name, node, part] = evidence

    def _note(self, kind: str, about: str, words: str) -> None:
        """Report a note about this detector, not about a node."""
        self._notes.setdefault((kind, about), Evidence("prometheus", Subject.NODE, "", Severity.NOTE, words, self._now, kind))

    def evidence(self) -> list[Evidence]:
        found = sorted(self._found.values(), key=lambda one: (one.severity is Severity.NOTE, one.happened, one.name, one.part))
        if len(found) + len(self._notes) > MOST:
            self._note("prometheus-many", "", prometheus.TOO_MUCH_FOUND(count=len(found)))
        notes = list(self._notes.values())[-MOST // 2 :]
        return [*found[: MOST - len(notes)], *notes]


def _usable(body: bytes | Unusable) -> bytes:
    if isinstance(body, Unusable):
        raise body
    return body
