"""The kernel's log: the meaning of real texts, texts that are not trusted, and how records become evidence."""

from __future__ import annotations

import errno
import io
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.detectors.kernel_texts import ALIKE, REAL, UP, L, N, S
from tests.message_texts import arguments_of, has

from understudy.detectors import kernel
from understudy.detectors.base import Evidence
from understudy.detectors.kernel import Kernel, parse
from understudy.detectors.kernel_patterns import PATTERNS, XIDS_BROKEN, XIDS_FAILING, XIDS_NVLINK5, Pattern, meaning
from understudy.messages import kernel_log

NOW, UPTIME = 1_000_000.0, 50_000.0
OFF_THE_BUS = "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus."
DOWN, AGAIN_UP = "mlx5_core 0000:01:00.0 eth2: Link down", "mlx5_core 0000:01:00.0 eth2: Link up"


def _record(text: str, seconds: float = UPTIME, *, priority: int = 4, sequence: int = 1) -> bytes:
    escaped = text.replace("\\", "\\x5c").replace("\n", "\\x0a")
    return f"{priority},{sequence},{round(seconds * 1e6)},-;{escaped}\n".encode()


class Log(io.RawIOBase):
    """In place of /dev/kmsg: one entry per read, and the errors that the real one cannot be made to give."""

    def __init__(self) -> None:
        self.entries: list[bytes | int] = []

    def read(self, size: int = -1, /) -> bytes | None:
        entry = self.entries.pop(0) if self.entries else None
        if isinstance(entry, int):
            raise OSError(entry, os.strerror(entry))
        return entry


class Watch:
    """A detector, its log and its clocks."""

    def __init__(self) -> None:
        self.log, self.now, self.uptime = Log(), NOW, UPTIME
        self.detector = Kernel(open_log=lambda _: self.log, clock=lambda: self.now, uptime=lambda: self.uptime)

    def look(self, *entries: bytes | int, later: float = 0.0) -> list[Evidence]:
        self.now, self.uptime = self.now + later, self.uptime + later
        self.log.entries += entries
        return self.detector.look()


@pytest.mark.parametrize("text", REAL)
def test_a_real_text_is_matched_by_its_pattern(text: str) -> None:
    found = meaning(text)
    assert found is not None
    assert (found.kind, found.pattern.severity, found.pattern.subject, found.part) == REAL[text]
    assert found.pattern.source and not found.pattern.clears
    [reported] = Watch().look(_record(text, UPTIME - 10.0))
    assert (reported.detector, reported.name, reported.kind, reported.part) == ("kernel", "", found.kind, found.part)
    assert (reported.subject, reported.severity, reported.happened) == (found.pattern.subject, found.pattern.severity, NOW - 10.0)
    state = found.pattern.settles > 0
    expected = (NOW if state else NOW - 10.0) + found.pattern.hold if found.pattern.hold else 0.0
    assert reported.until == expected
    assert reported.detail == record(text.replace("\n", " "))


def record(text: str, again: str = "") -> str:
    return kernel_log.RECORD(record=text, again=again)


def _pattern(text: str) -> Pattern:
    found = meaning(text)
    assert found is not None
    return found.pattern


def test_there_is_a_real_text_of_every_pattern() -> None:
    assert {_pattern(text) for text in [*REAL, *UP]} == set(PATTERNS)


def test_an_up_is_of_the_same_kind_and_part_as_its_down() -> None:
    for text, interface in UP.items():
        found = meaning(text)
        assert found is not None and found.pattern.clears
        assert (found.kind, found.part) == ("link-down", interface)


@pytest.mark.parametrize("text", ALIKE)
def test_a_text_that_looks_alike_means_nothing(text: str) -> None:
    assert meaning(text) is None


@pytest.mark.parametrize("number", sorted(XIDS_BROKEN | XIDS_FAILING | {8, 13, 31, 43, 45, 999}))
def test_xids_by_number(number: int) -> None:
    pattern = _pattern(f"NVRM: Xid (PCI:0000:01:00): {number}, pid='<unknown>', name=<unknown>, something")
    assert pattern.severity is (S if number in XIDS_BROKEN | XIDS_FAILING else N)
    assert (pattern.hold == 0.0) is (number in XIDS_BROKEN)


def test_xids_of_nvidias_catalogue() -> None:
    """Its immediate actions, as of 2025; 48 and 74 have work flows."""
    reset = {46, 64, 62, 79, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158}
    go_on = {8, 11, 13, 25, 31, 32, *range(37, 46), 60, *range(66, 73), *range(75, 78), 80, 93, 121, 137}
    assert reset | {48, 74} <= XIDS_BROKEN
    assert {63, 92, 94, 157} == XIDS_FAILING
    assert not XIDS_BROKEN & go_on
    assert not XIDS_BROKEN & XIDS_FAILING and not XIDS_NVLINK5 & (XIDS_BROKEN | XIDS_FAILING)


@pytest.mark.parametrize("text", REAL)
def test_the_name_of_a_process_cannot_pass_for_a_text(text: str) -> None:
    """The kernel begins some of its own texts with such a name, of 15 bytes at most."""
    for name in (text[:length] for length in range(16)):
        assert meaning(f"{name}[4242]: segfault at 0 ip 0000000000401136 sp 00007ffd error 6 in a.out[401000+1000]") is None
        assert meaning(f"{name} invoked oom-killer: gfp_mask=0x140dca(GFP_HIGHUSER_MOVABLE|__GFP_ZERO), order=0, oom_score_adj=0") is None
        assert meaning(f"{name}: page allocation failure: order:4, mode:0x40cc0(GFP_KERNEL|__GFP_COMP), nodemask=(null)") is None
        assert meaning(f"{name} (4242): drop_caches: 3") is None


def test_a_process_cannot_make_its_error_a_fatal_one() -> None:
    assert _pattern("NVRM: Xid (PCI:0000:01:00): 145, pid=1, name=x, A Fatal XC0 , RLW_CTRL Nonfatal XC0 i0 Link 00 (0x0)").severity is N
    assert _pattern("NVRM: Xid (PCI:0000:01:00): 13, pid=1, name=Xid: 79, , Ch 0").severity is N


def test_the_form_of_a_record() -> None:
    assert parse(b"6,339,5140900,-;NET: Registered protocol family 10") == kernel.Record(
        0, 339, 5.1409, "NET: Registered protocol family 10"
    )
    assert parse(b"6,339,5140900,-,caller=T1,more=2;a;b") == kernel.Record(0, 339, 5.1409, "a;b")
    assert parse(b"30,340,5690716,-;udevd[80]: starting") == kernel.Record(3, 340, 5.690716, "udevd[80]: starting")
    assert parse(rb"4,1,2,-;a\x0ab \x5c \xzz \xc3\xa4") == kernel.Record(0, 1, 0.000002, "a\nb \\ \\xzz ä")
    assert parse(b"4,1,2,-;") == kernel.Record(0, 1, 0.000002, "")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b";",
        b" SUBSYSTEM=pci",
        b" DEVICE=+pci:0000:01:00.0;1,2,3",
        b"no record",
        b"4,1;text",
        b"4,,2,-;text",
        b"-4,1,2,-;text",
        b"4,1,2.5,-;text",
        b" 4,1,2,-;text",
        b"four,1,2,-;text",
        b"4,1," + b"9" * 21 + b",-;text",
        "4,1,٢,-;text".encode(),
        b"4,1,2,-;\xff\xfe",
        "4,1,2,-;ä".encode(),
        b"4,1,2,-;" + b"a" * kernel.RECORD,
    ],
)
def test_what_is_no_record(line: bytes) -> None:
    assert parse(line) is None
    text = _record(OFF_THE_BUS)
    assert [one.kind for one in Watch().look(line + b"\n", text)] == ["xid-79"], "and the next one is read"


@pytest.mark.parametrize("facility", [1, 3, 16, 100])
def test_what_a_process_writes_into_the_log_is_not_believed(facility: int) -> None:
    assert Watch().look(_record(OFF_THE_BUS, priority=facility * 8 + 4)) == []
    assert Watch().look(_record(OFF_THE_BUS, priority=7)) != []


def test_lines_below_a_record_belong_to_it() -> None:
    [reported] = Watch().look(_record(OFF_THE_BUS) + b" SUBSYSTEM=pci\n DEVICE=+pci:0000:01:00.0\n")
    assert reported.detail == record(OFF_THE_BUS)


def test_a_file_is_read_on_where_it_ended_even_in_the_middle_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_bytes(b"")
    detector = Kernel(str(path), clock=lambda: NOW, uptime=lambda: UPTIME)
    assert detector.look() == []
    record = _record(OFF_THE_BUS)
    for part in (record[:5], record[5:30]):
        with path.open("ab") as file:
            file.write(part)
        assert detector.look() == []
    with path.open("ab") as file:
        file.write(record[30:])
    assert [one.kind for one in detector.look()] == ["xid-79"]
    assert detector.look() == []
    detector.close()
    assert [one.kind for one in detector.look()] == ["xid-79"], "opened again, from the beginning"
    detector.close()


def test_a_look_does_not_wait_for_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    assert Kernel.missing(str(path)) == ""
    detector = Kernel(str(path), clock=lambda: NOW, uptime=lambda: UPTIME)
    assert detector.look() == [], "there is no writer"
    with path.open("wb", buffering=0) as pipe:
        assert detector.look() == [], "a writer might"
        pipe.write(_record(OFF_THE_BUS))
        assert [one.kind for one in detector.look()] == ["xid-79"]
    detector.close()


def test_the_end_of_a_line_that_is_too_long_is_no_record(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_bytes(
        b"x" * (3 * kernel.RECORD) + b";" * 9 + _record(OFF_THE_BUS) + _record("nvme nvme0: Removing after probe failure status: -19")
    )
    detector = Kernel(str(path), clock=lambda: NOW, uptime=lambda: UPTIME)
    assert [one.kind for one in detector.look()] == ["nvme-dead"]
    detector.close()


def test_a_line_of_many_reads_is_no_record_at_any_cut() -> None:
    record = _record(OFF_THE_BUS)
    endless = Watch()
    assert endless.look(*[b"x" * kernel.RECORD] * 20) == []
    assert len(endless.detector._rest) <= kernel.RECORD + 1, "nor is it kept"
    assert Watch().look(record[:-1].ljust(kernel.RECORD + 1, b"y"), b"\n") == []
    assert len(Watch().look(record[:-1].ljust(kernel.RECORD, b"y"), b"\n")) == 1
    for cut in range(len(record)):
        assert Watch().look(b"x" * kernel.RECORD, b"x" * kernel.RECORD, b"xx" + record[:cut], record[cut:]) == []


def test_records_that_were_overwritten_end_nothing() -> None:
    """EPIPE is what /dev/kmsg gives for them; the log of these tests stands in, because it takes a full buffer to see one there."""
    watch = Watch()
    assert watch.look(_record("boring", sequence=7)) == []
    reported = watch.look(errno.EPIPE, _record("not the kernel's", sequence=18, priority=12), _record(OFF_THE_BUS, sequence=19))
    assert [(one.kind, one.severity) for one in reported] == [("xid-79", S), ("log-overwritten", N)]
    assert reported[1].detail == kernel_log.OVERWRITTEN(count=10)
    assert watch.look(errno.EINVAL, _record(OFF_THE_BUS, sequence=20))[1].detail == kernel_log.OVERWRITTEN(count=1)
    assert len(watch.look(_record(OFF_THE_BUS, sequence=90))) == 1, "no error, no loss"


def test_a_log_that_begins_with_overwritten_records_has_lost_nothing_of_ours() -> None:
    assert [one.kind for one in Watch().look(errno.EPIPE, _record(OFF_THE_BUS, sequence=4000))] == ["xid-79"]


def test_another_error_is_raised_and_nothing_but_errors_ends() -> None:
    with pytest.raises(OSError, match="No such device"):
        Watch().look(errno.ENODEV)
    assert Watch().look(*[errno.EPIPE] * (kernel.READS + 5)) == []


def test_many_records_of_one_thing_are_one_piece_of_evidence() -> None:
    texts = [f"EDAC MC0: 1 CE memory read error on DIMM#0 (channel:0 page:0x{number:x})" for number in range(500)]
    reported = Watch().look(
        *[_record(text, UPTIME - 500 + number) for number, text in enumerate(texts)], _record(texts[0].replace("MC0", "MC1"))
    )
    assert [(one.part, one.happened, one.until) for one in reported] == [("mc0", NOW - 500, NOW - 1 + 86400), ("mc1", NOW, NOW + 86400)]
    assert reported[0].detail == record(texts[0], f" (500 times, last: {texts[-1]})")
    [twice] = Watch().look(_record(OFF_THE_BUS), _record(OFF_THE_BUS))
    assert twice.detail == record(OFF_THE_BUS, " (2 times)")


def test_a_look_is_bounded_and_keeps_the_gravest() -> None:
    notes = [_record(f"EDAC MC{number}: 1 CE on any memory (page:0x1)") for number in range(100)]
    reported = Watch().look(*notes, _record(OFF_THE_BUS))
    assert len(reported) == kernel.PIECES
    assert reported[0].kind == "xid-79"
    assert reported[-1].kind == "log-more" and reported[-1].detail == kernel_log.MORE(count=101 - kernel.PIECES + 1)
    watch = Watch()
    assert watch.look(*[_record("boring")] * kernel.READS, _record(OFF_THE_BUS)) == []
    assert [one.kind for one in watch.look()] == ["xid-79"], "the rest is for the next look"


def test_a_long_text_is_cut_and_what_cannot_be_printed_is_a_blank() -> None:
    [reported] = Watch().look(_record(OFF_THE_BUS + "\x1b[31m\n" + "y" * 5000).replace(b"\x1b", b"\\x1b"))
    shown = str(arguments_of(reported.detail)["record"])
    assert shown.startswith(OFF_THE_BUS + " [31m yyy") and len(shown) == kernel.DETAIL


def test_evidence_that_has_worn_off_before_it_was_read_is_not_reported() -> None:
    oom = "Out of memory: Killed process 1 (a) total-vm:1kB"
    reported = Watch().look(_record(oom, UPTIME - 3600.0), _record(OFF_THE_BUS, 1.0))
    assert [(one.kind, one.until) for one in reported] == [("xid-79", 0.0)]
    assert [one.until for one in Watch().look(_record(oom, UPTIME - 3599.0))] == [NOW + 1.0]


def test_times_are_neither_in_the_future_nor_before_the_look_before() -> None:
    watch = Watch()
    assert [one.happened for one in watch.look(_record(OFF_THE_BUS, UPTIME + 100.0))] == [NOW]
    assert [one.happened for one in watch.look(_record(OFF_THE_BUS, UPTIME - 900.0), later=10.0)] == [NOW]
    assert [one.happened for one in watch.look(_record(OFF_THE_BUS, UPTIME + 15.0), later=10.0)] == [NOW + 15.0]


def test_a_link_that_stays_down_is_reported_again_until_it_is_up() -> None:
    watch = Watch()
    assert watch.look(_record(DOWN, UPTIME)) == []
    assert watch.look(later=4.0) == [], "it has not lasted"
    [down] = watch.look(later=1.0)
    assert (down.kind, down.part, down.severity, down.happened, down.until) == ("link-down", "eth2", S, NOW, NOW + 5.0 + 120.0)
    assert watch.look(later=30.0) == []
    [again] = watch.look(later=30.0)
    assert (again.happened, again.until) == (NOW, NOW + 65.0 + 120.0)
    [end] = watch.look(_record(AGAIN_UP, UPTIME + 70.0), later=10.0)
    assert (end.kind, end.part, end.happened, end.until) == ("link-down", "eth2", NOW, NOW + 70.0)
    assert watch.look(later=1000.0) == []
    assert watch.look(_record(AGAIN_UP, UPTIME + 1000.0)) == [], "it was not down"


def test_a_link_that_is_down_for_a_moment_is_a_note() -> None:
    watch = Watch()
    [reported] = watch.look(*[_record(text, UPTIME - 8.0 + number) for number, text in enumerate((DOWN, AGAIN_UP) * 4)])
    assert (reported.kind, reported.part, reported.severity, reported.subject) == ("link-down-briefly", "eth2", N, L)
    assert (reported.detail, reported.happened, reported.until) == (record(DOWN, " (4 times)"), NOW - 8.0, NOW - 2.0 + 3600.0)
    assert watch.look(_record(DOWN, UPTIME + 3.0), later=4.0) == []
    assert [one.kind for one in watch.look(_record(AGAIN_UP, UPTIME + 5.0), later=2.0)] == ["link-down-briefly"]
    assert watch.look(later=100.0) == []


def test_links_that_were_down_long_before_the_first_look_are_not_reported() -> None:
    watch = Watch()
    assert watch.look(_record(DOWN, UPTIME - 120.0)) == []
    assert watch.look(later=60.0) == []
    assert [one.part for one in Watch().look(_record(DOWN, UPTIME - 119.0))] == ["eth2"]


def test_links_that_are_down_are_bounded() -> None:
    watch = Watch()
    watch.look(*[_record(DOWN.replace("eth2", f"eth{number}")) for number in range(2 * kernel.STATES)])
    reported = watch.look(later=10.0)
    assert len(reported) == kernel.PIECES
    assert reported[-1].detail == kernel_log.MORE(count=kernel.STATES - kernel.PIECES + 1)


def test_why_the_log_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "does not exist" in Kernel.missing(str(tmp_path / "kmsg"))
    assert "not the kernel log" in Kernel.missing(str(tmp_path))
    assert "not the kernel log" in Kernel.missing(os.devnull)
    (tmp_path / "file").write_bytes(b"")
    assert Kernel.missing(str(tmp_path / "file")) == ""
    assert "cannot be opened" in Kernel.missing(str(tmp_path / "file" / "below"))

    def refuse(*_: object) -> int:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "open", refuse)
    assert "no permission" in Kernel.missing(str(tmp_path / "file"))


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_no_bytes_make_it_raise_or_report_anything(chunks: list[bytes]) -> None:
    watch = Watch()
    assert watch.look(*chunks) == []
    assert watch.look(*[b"4,1,1,-;" + chunk + b"\n" for chunk in chunks]) == []


@given(st.lists(st.tuples(st.sampled_from([*REAL, *UP]), st.binary(max_size=8), st.integers(0, 80)), max_size=8), st.integers(0, 2**66))
def test_no_broken_record_makes_it_raise(broken: list[tuple[str, bytes, int]], microseconds: int) -> None:
    watch = Watch()
    for text, noise, where in broken:
        record = b"4,%d,%d,-;" % (where, microseconds) + text.replace("\n", "\\x0a").encode()
        watch.look(record[:where] + noise + record[where:], b"\n")
    assert all(isinstance(one, Evidence) for one in watch.look(later=60.0))


@pytest.mark.skipif(Kernel.missing() != "", reason=f"the kernel's log: {Kernel.missing()}")
def test_the_log_of_this_machine_is_read() -> None:
    detector = Kernel()
    reported = detector.look()
    assert len(reported) <= kernel.PIECES
    assert all(one.happened > 0 and one.detail for one in reported)
    assert len(detector.look()) <= kernel.PIECES
    detector.close()


def before(*entries: bytes, since: float = NOW - 100.0) -> tuple[Watch, list[Evidence]]:
    watch = Watch()
    watch.detector = Kernel(since=since, open_log=lambda _: watch.log, clock=lambda: watch.now, uptime=lambda: watch.uptime)
    return watch, watch.look(*entries)


def test_what_was_suspect_before_the_job_began_is_one_note_and_what_comes_then_counts() -> None:
    old, new = _record(OFF_THE_BUS, UPTIME - 200.0), _record(OFF_THE_BUS.replace("01:00", "02:00"), UPTIME - 50.0)
    watch, found = before(old, _record("nvme nvme0: Removing after probe failure status: -19", UPTIME - 200.0), new, old)
    suspect, note = found
    assert (suspect.severity, suspect.part, suspect.happened) == ("suspect", "pci:0000:02:00.0", NOW - 50.0)
    assert (note.severity, note.subject, note.kind, note.part) == ("note", "node", "log-before", "")
    assert has(note.detail, kernel_log.BEFORE)
    assert "xid-79 pci:0000:01:00.0: NVRM: Xid" in note.detail and "nvme-dead nvme0: nvme nvme0" in note.detail
    assert watch.look(later=1.0) == [], "reported once"
    [again] = watch.look(_record(OFF_THE_BUS, UPTIME), later=1.0)
    assert (again.severity, again.part) == ("suspect", "pci:0000:01:00.0"), "it has happened again"


def test_notes_and_evidence_that_ended_before_the_job_began_are_not_reported() -> None:
    note = next(text for text, (_, severity, _, _) in REAL.items() if severity == "note")
    worn = next(text for text in REAL if _pattern(text).severity == "suspect" and _pattern(text).hold > 0 and not _pattern(text).settles)
    _, found = before(
        _record(note, UPTIME - 200.0),
        _record(worn, UPTIME - 150.0 - _pattern(worn).hold),
        _record(DOWN, UPTIME - 300.0),
        _record(AGAIN_UP, UPTIME - 200.0),
    )
    assert found == []
    _, [reported] = before(_record(DOWN, UPTIME - 300.0))
    assert reported.kind == "log-before" and "eth2: Link down" in reported.detail


def test_the_note_of_what_was_before_is_bounded() -> None:
    texts = [OFF_THE_BUS.replace("01:00", f"{number:02x}:00") for number in range(200)]
    _, [reported] = before(*(_record(text, UPTIME - 200.0) for text in texts))
    assert str(200 - kernel.NAMED) in str(arguments_of(reported.detail)["more"]) and len(reported.detail) < 2000
    _, many = before(*(_record(text, UPTIME - 200.0) for text in texts), since=0.0)
    assert len(many) == kernel.PIECES, "all of it counts"


def test_it_is_not_closed_while_it_is_read() -> None:
    watch = Watch()
    reading, go_on = threading.Event(), threading.Event()

    def wait(size: int = -1) -> bytes | None:
        reading.set()
        assert go_on.wait(30.0)
        assert not watch.log.closed
        return None

    watch.log.read = wait  # type: ignore[method-assign]
    looking = threading.Thread(target=watch.look)
    looking.start()
    assert reading.wait(30.0)
    closing = threading.Thread(target=watch.detector.close)
    closing.start()
    go_on.set()
    for thread in (looking, closing):
        thread.join(30.0)
    assert watch.log.closed
