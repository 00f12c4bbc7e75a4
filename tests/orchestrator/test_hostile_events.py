"""Events with anything in them: what a link takes can be handled, written, read again, shown and measured; the rest is refused there.

The way of an event through a service: decoded from the link, handled by the machine, written to the journal, read and replayed by the next
orchestrator, shown by status, report, metrics and the command line.
"""

from __future__ import annotations

import dataclasses
import io
import json
import threading
import typing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rich.console import Console
from tests.message_texts import codes, has, refused

from understudy.cli import show
from understudy.cli.events_command import Lines
from understudy.cli.show_topology import topology_view
from understudy.common import bounds
from understudy.common.bounds import NAME, TEXT, bounded, cut, plain, size
from understudy.common.names import JOURNAL
from understudy.common.page_view import Activity, PageView
from understudy.core import events
from understudy.core.machine import Machine
from understudy.core.model import JobSpec, LossCause, Timeouts
from understudy.links.messages import LIMIT, BadMessage, decode, decode_trusted, decode_untrusted, encode
from understudy.messages import orchestrators, service_jobs, tools, wire
from understudy.orchestrator import journal, metrics, views
from understudy.orchestrator.jobs import ServedJob
from understudy.orchestrator.settings import Settings
from understudy.orchestrator.state_view import state_table
from understudy.orchestrator.topology_view import topology_table

SPEC = JobSpec("job", 2, 1, nodes=2, spares=1, prepared=1, keep_together=("w0", "n0"))
SETTINGS = Settings(SPEC, Timeouts())
HOSTILE = ("w\ud800", "\x00", "\x1b[2J\x1b]0;you\x07", "é" * 200_000, "\u202eevil", "[/]", "[bold red]", "\r\n", "", "x" * LIMIT)

texts = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=40), st.text(st.characters(categories=["Cs", "Cc", "Cf", "Zl"]), max_size=20))
names = st.one_of(st.sampled_from(["w0", "w1", "w2", "w3", "n0", "n1"]), texts)
numbers = st.one_of(st.integers(-2, 3), st.sampled_from([1 << 62, -(1 << 63), 10**400]), st.integers())
times = st.one_of(st.floats(0, 2e9), st.floats(), st.sampled_from([1e308, -1e300, 10**400]))


def _values(kind: Any, name: str) -> st.SearchStrategy[Any]:
    """Of a field: from its type."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        return st.lists(_values(inner[0], name), max_size=4).map(tuple)
    if dataclasses.is_dataclass(kind):
        return _any_of(cast("type[Any]", kind))
    if inner:  # a union
        return st.one_of(*(_values(one, name) for one in inner))
    simple: dict[Any, st.SearchStrategy[Any]] = {str: names, int: numbers, float: times, bool: st.booleans(), type(None): st.none()}
    return simple[kind] if kind in simple else st.sampled_from(list(kind))


def _any_of(kind: type[Any]) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{field.name: _values(hints[field.name], field.name) for field in dataclasses.fields(kind)})


any_event = st.one_of(*map(_any_of, typing.get_args(events.Event)))
STORY: list[events.Event] = [  # a job that trains, and one whose rank 1 has just been lost
    *(events.NodeJoined(f"n{rank}", f"host{rank}", rank) for rank in (0, 1)),
    *(events.WorkerStarted(worker, node, 7) for worker, node in (("w0", "n0"), ("w1", "n1"), ("w2", "n0"))),
    *(events.WorkerWarm(worker, "h:1") for worker in ("w0", "w1", "w2")),
    *(events.Committed(f"w{rank}", 1, 0, 1) for rank in (0, 1)),
    events.WorkerLost("w1", LossCause.KILLED, "SIGKILL", 1.0),
]


def _written(text: str) -> bool:
    """Whether SQLite and PostgreSQL take it, and a terminal shows it as it is."""
    return "\x00" not in text and not any(0xD800 <= ord(c) <= 0xDFFF or (ord(c) < 32 and c not in "\n\t") or c == "\x7f" for c in text)


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for item in pair for text in _strings(item)]
    return [text for item in value for text in _strings(item)] if isinstance(value, list | tuple) else []


@given(any_event)
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@example(events.NodeJoined("é" * 200_000, "h", 0))
@example(events.NodeJoined("n0", "h", 0, workers=("é" * 200_000,)))
@example(events.WorkerStarted("w\ud800", "n0", 1))
def test_what_a_link_takes_is_read_again_as_it_was_taken(event: events.Event) -> None:
    try:
        message, written = decode_untrusted(encode(event))
    except BadMessage:
        return
    assert len(written) <= LIMIT and written.isascii()
    assert decode_trusted(written) == (message, written)
    assert all(map(_written, _strings(json.loads(written))))


@given(st.integers(0, len(STORY)), st.lists(any_event, max_size=6))
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@example(3, [events.NodeJoined("n7", "h", 5, spares=10**12)])
@example(8, [events.ScriptFailed("w0", 0, 1, "x\ud800", "\x1b[2J", 1)])
def test_whatever_is_taken_can_be_handled_kept_shown_and_measured(
    tmp_path_factory: pytest.TempPathFactory, known: int, hostile: list[events.Event]
) -> None:
    machine, kept = Machine(SPEC, SETTINGS.timeouts), []
    for event in [*STORY[:known], *hostile]:
        try:
            message, written = decode_untrusted(encode(event))
        except BadMessage:
            continue
        for command in machine.handle(cast("events.Event", message), 5.0):
            encode(command)
        kept.append((5.0, cast("events.Event", message), written))
    place = tmp_path_factory.mktemp("hostile") / JOURNAL
    reported: list[str] = []
    file = journal.Journal(place, reported.append)
    writer = file.begin(SETTINGS)
    for entry in kept:
        writer.append(*entry)
    file.start()
    file.close(60.0)
    assert reported == [] and not file.trouble
    found = journal.read(place)
    assert found is not None
    assert journal.replay(found.settings, found.events).state == machine.state
    _show(machine, kept)


def _show(machine: Machine, kept: list[tuple[float, events.Event, str]]) -> None:
    pages = {"w0": PageView(1, 1.0, Activity.RUNNING, 1, 1, 1.0, 1, 1.0)}
    terminal = io.StringIO()
    console = Console(file=terminal, width=200)
    status, report, table = views.status(machine, pages), views.report(machine), state_table(machine)
    places = topology_table(machine)
    for shown in (json.loads(json.dumps(answer, allow_nan=False)) for answer in (status, report, table, places)):
        assert all(map(_written, _strings(shown)))
        json.dumps(shown, ensure_ascii=False).encode()
    console.print(show.status_view(cast("dict[str, Any]", status)))
    console.print(show.report_view(cast("dict[str, Any]", report)))
    console.print(show.state_view(cast("dict[str, Any]", table)))
    console.print(topology_view(cast("dict[str, Any]", places)))
    lines = Lines(cast("Any", None))
    lines._ranks = dict.fromkeys([getattr(event, "worker", "") for _, event, _ in kept], 0)
    for number, (now, _, text) in enumerate(kept, 1):
        terminal.write(lines(journal.Numbered("job", number, now, text).shown()))
    assert _written(terminal.getvalue())
    job = cast("ServedJob", SimpleNamespace(name="job", service=SimpleNamespace(machine=machine, pages=pages)))
    stand_in = SimpleNamespace(all=lambda: [job], aside={"other": "why"}, journal=SimpleNamespace(waiting=lambda: 0, trouble=""))
    shown_too = metrics.Metrics(cast("Any", stand_in), None).text().decode()
    assert "understudy_job_step" in shown_too
    for (what, why), count in machine.state.refused.items():
        assert f'understudy_refused_total{{event="{what}",job_name="job",why="{why}"}} {count}.0' in shown_too


@given(texts, st.integers(200, 2000))
def test_texts_are_cut_to_what_they_may_have(text: str, most: int) -> None:
    short = cut(plain(text), most)
    assert size(short) <= most and _written(short)
    assert short == plain(text) or "characters left out" in short
    assert plain(short) == short and cut(short, most) == short


@pytest.mark.parametrize("name", ["w\ud800", "a\x00b", "é" * NAME, "x" * (NAME + 1), "\x1b[2J", "a\nb"])
def test_a_name_that_cannot_be_printed_is_refused(name: str) -> None:
    for event in (events.WorkerStarted(name, "n0", 1), events.NodeJoined("n0", "h", 0, workers=("w0", name))):
        with refused(BadMessage, wire.MALFORMED, type=type(event).__name__) as caught:
            decode(encode(event))
        assert {tools.NAME_UNPRINTABLE.code, tools.NAME_TOO_LONG.code} & {*codes(caught.value)} and "worker" in str(caught.value)


def test_a_traceback_loses_neither_its_event_nor_its_last_line() -> None:
    path = "caf\udce9.py"
    long = f"Traceback in {path}\n" + "🙂" * 100_000 + "\nValueError: the end"
    sent = bounded(events.ScriptFailed("w0", 0, 1, path, long))  # as a worker does before it speaks
    (heard, written) = decode_untrusted(encode(sent))
    assert heard == sent and isinstance(heard, events.ScriptFailed) and decode_trusted(written)[0] == heard
    assert heard.summary == "caf\\udce9.py" and heard.traceback.startswith("Traceback") and heard.traceback.endswith("the end")
    assert size(heard.traceback) <= TEXT


def test_nothing_to_mend_is_left_as_it_is() -> None:
    event = events.Verified("w0", 1, 7, ("a note", "é"))
    assert bounded(event) is event
    assert bounds.plain("é\tx\n") == "é\tx\n"


def test_thousands_of_nodes_that_are_lost_together_are_read_again(tmp_path: Path) -> None:
    """An event of the orchestrator itself has no limit as a whole: no other process can make it long."""
    lost = events.NodesLost(tuple(events.LostNode(f"n{number}", service_jobs.SILENT(seconds=2.0) * 3, 1.0) for number in range(12_000)))
    assert len(encode(lost)) > LIMIT
    file = journal.Journal(tmp_path / JOURNAL, lambda text: None)
    file.begin(SETTINGS).append(1.0, lost)
    file.start()
    file.close(60.0)
    found = journal.read(tmp_path / JOURNAL)
    assert found is not None and found.events == [(1.0, lost)]


def test_a_row_that_cannot_be_read_puts_its_own_job_aside(tmp_path: Path) -> None:
    place = tmp_path / JOURNAL
    file = journal.Journal(place, lambda text: None)
    for job in ("good", "bad", "fine"):
        mine = file.begin(Settings(JobSpec(job, 1, 1), Timeouts()))
        mine.append(0.0, STORY[0])
        mine.append(1.0, STORY[0], '{"type":"NodeJoined","node":"' + "\\u00e9" * 200_000 + '"}' if job == "bad" else "")
    file.start()
    file.close(60.0)
    aside: dict[str, str] = {}
    assert list(journal.read_all(place, aside=aside)) == ["good", "fine"]
    assert list(aside) == ["bad"] and has(aside["bad"], orchestrators.EVENT_UNREADABLE, number=2)
    assert has(aside["bad"], wire.MALFORMED, type="NodeJoined")
    with refused(journal.Unreadable, orchestrators.JOB_UNREADABLE, job="bad"):
        journal.read(place, "bad")


def test_a_writer_reports_any_failure_and_tries_again(tmp_path: Path) -> None:
    """Names with halves of surrogate pairs ended its thread once, in silence. Nothing gets so far any more; if it did, this happens."""
    reported: list[str] = []
    failed, over = threading.Event(), threading.Event()

    def tell(text: str) -> None:
        reported.append(text)
        (over if has(text, orchestrators.JOURNAL_WRITTEN_AGAIN) else failed).set()

    file = journal.Journal(tmp_path / JOURNAL, tell)
    file.start()
    writer = file.begin(SETTINGS)
    page = PageView(1, 1.0, Activity.RUNNING, 1, 1, 1.0, 1, 1.0)
    pages = {"w\ud800": page}
    writer.progress(pages)
    writer.append(0.0, STORY[0])
    assert failed.wait(60.0)
    assert "UnicodeEncodeError" in reported[0] and has(file.trouble, orchestrators.JOURNAL_BUG)
    file._batch._pages.clear()  # whatever it was is over
    assert over.wait(60.0) and not file.trouble
    file.close(60.0)
    found = journal.read(tmp_path / JOURNAL)
    assert found is not None and found.events == [(0.0, STORY[0])]
