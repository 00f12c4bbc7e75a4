"""The suite's own judgement: every way to be wrong is seen as such. A check that cannot fail is no check."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripts.evidence.store import load, save

from tests.conformance import runs, scripts, verdict
from tests.conformance.runs import Ran, Trace
from tests.conformance.scripts import Kill, Script, phases, plan, read
from tests.conformance.suite import attempt
from tests.conformance.table import elsewhere, record, summary
from tests.conformance.verdict import BORROWED, Found, disturbed, named, steady, undisturbed
from tests.message_texts import has
from understudy.messages import disputes, newcomers
from understudy.messages import script as messages
from understudy.messages.registry import registry

pytestmark = pytest.mark.gate

RANKS, STEPS = 3, 6
SCRIPT = Script(Path("made_up.py"), "Made up.")
REFUSED = replace(SCRIPT, expect="refused", code=messages.MODEL_NOT_REGISTERED.code)
TOLD = replace(SCRIPT, expect="told", code=messages.WORK_KEPT.code, text="allreduce")
REFUSAL = f"UsageError: {messages.MODEL_NOT_REGISTERED(optimizer='x')}"
NOTICE = f"understudy: {messages.WORK_KEPT(function='train', call='allreduce')}"
KILLS = (Kill("forward", 1, 0), Kill("applied", 2, 1), Kill("between", 3, 0))
NOTE = f"rank 1: {newcomers.RESULT_OF_ANOTHER(place='0.3.0')}"


def tell(folder: Path, skip: set[tuple[int, int]] | None = None, **changed: Any) -> Trace:
    """A trace like a script's: a line for each step, and a final state. `skip`: ranks and steps without a line. `changed`: `loss_RANK_STEP`
    and `weight_RANK`.
    """
    folder.mkdir(parents=True)
    for rank in range(RANKS):
        with (folder / f"lines-{rank}.jsonl").open("w") as file:
            for step in range(1, STEPS + 1):
                if (rank, step) not in (skip or set()):
                    loss = changed.get(f"loss_{rank}_{step}", f"{rank}.{step}")
                    file.write(json.dumps({"key": f"step {step}", "loss": loss, "mean": step}) + "\n")
        state = {"model": {"weight": changed.get(f"weight_{rank}", "same"), "bias": "same"}}
        (folder / f"final-{rank}.json").write_text(json.dumps(state))
    return Trace.of(folder, RANKS)


@pytest.fixture
def reference(tmp_path: Path) -> Ran:
    return Ran(tell(tmp_path / "reference"))


def incident(rank: int = 0, cause: str = "killed", *notes: str) -> dict[str, Any]:
    return {"rank": rank, "cause": cause, "transaction": 4, "ranks": [{"rank": rank, "cause": cause}], "notes": list(notes)}


def with_kills(trace: Trace, *incidents: dict[str, Any], **more: Any) -> Ran:
    return Ran(trace, kills=KILLS, incidents=incidents or (incident(),), **more)


def judged(reference: Ran, ran: Ran, script: Script = SCRIPT, before: str = "bitwise") -> str:
    return disturbed(script, reference, ran, Found(before)).verdict


def test_the_same_is_bitwise(reference: Ran, tmp_path: Path) -> None:
    trace = tell(tmp_path / "other")
    assert undisturbed(SCRIPT, reference, Ran(trace)) == Found("bitwise")
    assert disturbed(SCRIPT, reference, with_kills(trace), Found("bitwise")) == Found("bitwise", kills=KILLS)


def test_a_wrong_final_state(reference: Ran, tmp_path: Path) -> None:
    trace = tell(tmp_path / "other", weight_2="another")
    found = undisturbed(SCRIPT, reference, Ran(trace))
    assert found == Found("silent", "undisturbed: rank 2, final state: model, weight")
    assert judged(reference, with_kills(trace)) == "silent"


def test_a_wrong_line(reference: Ran, tmp_path: Path) -> None:
    trace = tell(tmp_path / "other", loss_1_4="9.9")
    found = undisturbed(SCRIPT, reference, Ran(trace))
    assert found == Found("silent", "undisturbed: rank 1, step 4: loss")
    assert judged(reference, with_kills(trace)) == "silent"


def test_a_missing_line_belongs_to_a_kill(reference: Ran, tmp_path: Path) -> None:
    one, two = tell(tmp_path / "one", skip={(1, 3)}), tell(tmp_path / "two", skip={(1, 3), (1, 4)})
    assert undisturbed(SCRIPT, reference, Ran(one)).verdict == "missing"
    assert judged(reference, with_kills(one)) == "bitwise"
    assert judged(reference, with_kills(two)) == "missing", "it was killed once"
    assert judged(reference, with_kills(tell(tmp_path / "three", skip={(0, 3), (0, 4)}))) == "bitwise", "it was killed twice"
    assert judged(reference, with_kills(tell(tmp_path / "never", skip={(2, 3)}))) == "missing", "it was never killed"


def test_a_missing_final_state_belongs_to_no_kill(reference: Ran, tmp_path: Path) -> None:
    tell(tmp_path / "other")
    (tmp_path / "other" / "final-1.json").unlink()
    trace = Trace.of(tmp_path / "other", RANKS)
    assert undisturbed(SCRIPT, reference, Ran(trace)).verdict == "missing"
    assert judged(reference, with_kills(trace)) == "missing"


def test_a_line_may_be_printed_twice_but_not_changed(reference: Ran, tmp_path: Path) -> None:
    tell(tmp_path / "other")
    path = tmp_path / "other" / "lines-0.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:3], lines[2], *lines[3:]]) + "\n")
    assert judged(reference, with_kills(Trace.of(tmp_path / "other", RANKS))) == "bitwise"
    path.write_text("\n".join([*lines, json.dumps({"key": "step 3", "loss": "9.9", "mean": 3})]) + "\n")
    assert judged(reference, with_kills(Trace.of(tmp_path / "other", RANKS))) == "silent"


def test_a_line_that_the_reference_lacks(reference: Ran, tmp_path: Path) -> None:
    tell(tmp_path / "other")
    with (tmp_path / "other" / "lines-0.jsonl").open("a") as file:
        file.write(json.dumps({"key": "step 7", "loss": "0.7", "mean": 7}) + "\n")
    trace = Trace.of(tmp_path / "other", RANKS)
    assert undisturbed(SCRIPT, reference, Ran(trace)).verdict == "silent"
    assert judged(reference, with_kills(trace)) == "silent"


def test_a_line_that_was_cut_off_is_not_there(reference: Ran, tmp_path: Path) -> None:
    tell(tmp_path / "other")
    path = tmp_path / "other" / "lines-1.jsonl"
    path.write_text(path.read_text()[:-5])
    assert judged(reference, with_kills(Trace.of(tmp_path / "other", RANKS))) == "bitwise"
    assert undisturbed(SCRIPT, reference, Ran(Trace.of(tmp_path / "other", RANKS))).verdict == "missing"


def test_another_ranks_result_needs_a_note(reference: Ran, tmp_path: Path) -> None:
    borrowed = tell(tmp_path / "other", loss_1_3="2.3")
    assert judged(reference, with_kills(borrowed)) == "silent"
    assert judged(reference, with_kills(borrowed, incident(1, "killed", NOTE))) == "bitwise"
    assert judged(reference, with_kills(tell(tmp_path / "never", loss_2_3="1.3"), incident(1, "killed", NOTE))) == "silent", "not killed"
    assert judged(reference, with_kills(tell(tmp_path / "no", loss_1_3="9.9"), incident(1, "killed", NOTE))) == "silent", "nobody's"
    twice = tell(tmp_path / "twice", loss_0_3="2.3", loss_0_5="2.5")
    assert judged(reference, with_kills(twice, incident(1, "killed", NOTE))) == "silent", "one note for two lines"
    elsewhere = tell(tmp_path / "elsewhere", loss_1_3="2.4")
    assert judged(reference, with_kills(elsewhere, incident(1, "killed", NOTE))) == "silent", "of another step"


def test_a_run_that_hangs(reference: Ran) -> None:
    assert undisturbed(SCRIPT, reference, replace(reference, hung=True)).verdict == "hung"
    assert judged(reference, with_kills(reference.trace, hung=True)) == "hung"
    assert judged(reference, with_kills(reference.trace, incident(), incident(2, "hung"))) == "hung", "a healthy rank counted as one"


def test_a_death_in_cpp(reference: Ran) -> None:
    terminated = "terminate called after throwing an instance of 'gloo::EnforceNotMet'"
    assert undisturbed(SCRIPT, reference, replace(reference, output=terminated)).verdict == "aborted"
    assert judged(reference, with_kills(reference.trace, crashes=("worker w2 died: SIGABRT",))) == "aborted"
    assert judged(reference, with_kills(reference.trace, crashes=("worker w2 died: SIGABRT",)), TOLD, "told") == "aborted"
    refused = replace(reference, code=1, output=f"{REFUSAL}\nSIGABRT")
    assert undisturbed(REFUSED, reference, refused).verdict == "aborted"


def test_a_job_that_ends_with_an_error(reference: Ran) -> None:
    ended = replace(reference, code=1, output="ValueError: of the script\nunderstudy: rank 0 failed")
    found = undisturbed(SCRIPT, reference, ended)
    assert (found.verdict, "ValueError: of the script" in found.why) == ("crashed", True)
    assert judged(reference, with_kills(reference.trace, code=1)) == "crashed"


def test_a_job_that_is_held_waits_for_a_person_and_does_not_hang(reference: Ran) -> None:
    told = disputes.REDO_HELD(rank=0, worker="w0", transaction=4, step=3, detail="another result")
    held = with_kills(reference.trace, hung=True, output=f"training\nunderstudy: {told}\nmore")
    assert has(held.held, disputes.REDO_HELD, rank=0) and reference.held == ""
    assert judged(reference, held) == "held"
    assert judged(reference, held, TOLD, "told") == "told", "the script was reported not to survive"


def test_incidents_that_no_kill_explains(reference: Ran) -> None:
    assert undisturbed(SCRIPT, reference, replace(reference, incidents=(incident(0, "corrupt"),))).verdict == "lost"
    assert judged(reference, with_kills(reference.trace, incident(), incident(2, "exited"))) == "lost"


def test_kills_that_never_struck_show_nothing(reference: Ran) -> None:
    ran = with_kills(reference.trace)
    assert judged(reference, replace(ran, kills=KILLS[:2])) == "idle"
    assert judged(reference, replace(ran, kills=KILLS[:2]), replace(SCRIPT, own=KILLS[:2])) == "bitwise"
    assert judged(reference, replace(ran, kills=KILLS[:1]), replace(SCRIPT, own=KILLS[:2])) == "idle"


def test_refused_only_by_the_message_and_early(reference: Ran, tmp_path: Path) -> None:
    early = Ran(tell(tmp_path / "early", skip={(r, s) for r in range(RANKS) for s in range(3, STEPS + 1)}), 1, REFUSAL)
    assert undisturbed(REFUSED, reference, early) == Found("refused")
    assert undisturbed(REFUSED, reference, replace(early, trace=reference.trace)).verdict == "crashed", "too late"
    assert undisturbed(REFUSED, reference, replace(early, output=NOTICE)).verdict == "crashed"
    assert undisturbed(REFUSED, reference, replace(early, hung=True)).verdict == "hung"
    assert undisturbed(REFUSED, reference, replace(reference, output=REFUSAL)).verdict == "bitwise", "a notice is no refusal"
    assert undisturbed(SCRIPT, reference, early).verdict == "crashed", "no one expected it"


def test_told_before_the_kill_may_differ_after_it(reference: Ran, tmp_path: Path) -> None:
    told, other = replace(reference, output=NOTICE), tell(tmp_path / "other", weight_0="another")
    assert undisturbed(TOLD, reference, told) == Found("told")
    assert undisturbed(TOLD, reference, reference) == Found("bitwise")
    for other_output in (NOTICE.replace("allreduce", "broadcast"), f"allreduce\n{NOTICE.replace('allreduce', '')}"):
        assert undisturbed(TOLD, reference, replace(reference, output=other_output)) == Found("bitwise"), "of something else"
    assert undisturbed(TOLD, reference, replace(told, trace=other)).verdict == "silent"
    assert judged(reference, with_kills(other), TOLD, "told") == "told"
    assert judged(reference, with_kills(other, code=1), TOLD, "told") == "told"
    assert judged(reference, with_kills(other, hung=True), TOLD, "told") == "hung"
    assert judged(reference, with_kills(other), TOLD, "bitwise") == "silent", "it was not reported"


def test_a_script_that_is_not_the_same_twice_shows_nothing(reference: Ran, tmp_path: Path) -> None:
    assert steady(reference) is None and steady(reference, reference) is None
    other = Ran(tell(tmp_path / "other", loss_0_1="9.9"))
    for found in (steady(reference, other), steady(replace(reference, code=1)), steady(replace(reference, hung=True))):
        assert found is not None and found.verdict == "unsteady"
    tell(tmp_path / "double")
    path = tmp_path / "double" / "lines-0.jsonl"
    path.write_text(path.read_text() * 2)
    double = steady(Ran(Trace.of(tmp_path / "double", RANKS)))
    assert double is not None and "two lines" in double.why


def test_torch_that_aborts_after_the_end_of_every_rank_proves_nothing_about_the_script(reference: Ran, tmp_path: Path) -> None:
    aborted = replace(reference, code=1, output="terminate called without an active exception\nexitcode : -6")
    assert steady(aborted) is None
    (tmp_path / "reference" / "final-1.json").unlink()
    too_early = replace(aborted, trace=Trace.of(tmp_path / "reference", RANKS))
    for ran in (too_early, replace(aborted, output="exitcode : -6")):
        assert (found := steady(ran)) is not None and found.verdict == "unsteady"


def test_what_is_expected() -> None:
    assert verdict.wrong(SCRIPT, Found("bitwise")) == ""
    for name in ("refused", "told", "silent", "missing", "held", "hung", "aborted", "crashed", "lost", "idle", "unsteady"):
        assert verdict.wrong(SCRIPT, Found(name)), name
    assert verdict.wrong(REFUSED, Found("refused")) == "" and verdict.wrong(REFUSED, Found("bitwise"))


def test_the_plan_has_every_phase() -> None:
    kills = plan(3)
    assert [len(phase) for phase in phases(kills)] == [1, 2, 1, 1, 1, 1, 1, 2, 1]
    assert {kill.point for kill in kills} >= {"forward", "backward", "vote", "vote agreement", "applied", "evaluation", "between", "verify"}
    newcomer = next(number for number, kill in enumerate(kills) if kill.of_newcomer)
    assert [kill.rank for kill in kills[: newcomer + 1]].count(kills[newcomer].rank) == 2, "the newcomer of its rank's first kill"
    assert len(plan(2)) == len(kills) - 2 and all(kill.rank < 2 for kill in plan(2)), "of two ranks one must be left"
    for ranks in (2, 3, 4):
        for number, kill in enumerate(plan(ranks)):
            earlier = plan(ranks)[: number - 1]
            assert not kill.of_newcomer or kill.rank not in {one.rank for one in earlier}, "it would wait for a kill that comes later"


def test_kills_are_armed_one_after_the_other_only_where_they_belong_together(tmp_path: Path) -> None:
    runs.arm(plan(3), tmp_path)
    armed = [json.loads((tmp_path / "chaos" / f"{number}.json").read_text()) for number in range(len(plan(3)))]
    for number, (kill, fault) in enumerate(zip(plan(3), armed, strict=True)):
        assert (fault["rank"], fault["point"]) == (kill.rank, kill.point)
        assert fault["step"] == (None if kill.of_newcomer else kill.step)
        assert fault["behind"] == (str(number - 1) if kill.of_newcomer or kill == Kill("forward", 9, 2) else "")


HEADER = '''"""What it does.

More.
"""

# ranks: 4
# expect: refused US1203 "a \\"word\\" of it"
# kills: forward@0:1 vote agreement@3:0, verify:0
# group: optimizers
# arguments: --x "a b"

import torch
# ranks: 2
'''


def test_headers(tmp_path: Path) -> None:
    path = tmp_path / "feature.py"
    path.write_text(HEADER.replace("verify:0", "verify@3:0").replace('\\"', "'"))
    found = read(path)
    assert (found.name, found.about, found.ranks, found.group) == ("feature", "What it does.", 4, "optimizers")
    assert (found.expect, found.code, found.text) == ("refused", "US1203", "a 'word' of it")
    assert found.expectation == "refused US1203 \"a 'word' of it\""
    assert found.kills == (Kill("forward", 0, 1), Kill("vote agreement", 3, 0), Kill("verify", 3, 0))
    assert found.arguments == ("--x", "a b")


def test_a_script_whose_packages_are_missing_is_skipped_and_not_counted_as_bitwise(tmp_path: Path) -> None:
    path = tmp_path / "feature.py"
    path.write_text('"""What it does."""\n\n# expect: bitwise\n# needs: torch no_such_package\n\nimport torch\n')
    script = read(path)
    assert script.needs == ("torch", "no_such_package") and "no_such_package" in script.missing
    result = attempt(script, tmp_path, lambda script, what: None)
    assert (result.found.verdict, result.wrong) == ("skipped", "")
    path.write_text(path.read_text().replace(" no_such_package", ""))
    assert read(path).missing == ""


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ("", "expect"),
        ("# expect: fine", "expect"),
        ("# expect: told", "expect"),
        ("# expect: told US12", "expect"),
        ("# expect: US1203", "expect"),
        ("# expect: bitwise\n# kills: lunch@3:1", "no point"),
        ("# expect: bitwise\n# kills: forward@3", "POINT@STEP:RANK"),
        ("# expect: bitwise\n# kills: forward@3:3", "rank"),
        ("# expect: bitwise\n# kills: forward@3:1 forward@5:1 verify@5:1", "first kill"),
        ("# expect: bitwise\n# kills: forward@3:1 forward@5:2 verify@5:1", "right after"),
        ("# expect: bitwise\n# expect: bitwise", "two lines"),
    ],
)
def test_headers_that_cannot_be_meant(said: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "feature.py"
    path.write_text(f'"""What it does."""\n\n{said}\n\nimport torch\n')
    with pytest.raises(ValueError, match=complaint):
        read(path)


def test_every_script_can_be_read() -> None:
    found = scripts.find()
    assert "ddp_plain" in {script.name for script in found}
    assert len({script.name for script in found}) == len(found)
    assert {script.code for script in found if script.code} <= registry().keys()
    by_code = read(scripts.FOLDER / "batches_changed_in_place_dict.py")
    assert (by_code.expectation, by_code.code, by_code.text) == ("refused US1111", messages.ARGUMENTS_CHANGED.code, "")


@pytest.mark.parametrize(
    ("drill", "kills", "verdict"),
    [
        ("same", "silent", "silent"),  # the drill missed it: that is a defect
        ("broken", "silent", "silent"),
        ("different", "silent", "named"),
        ("not reproducible", "crashed", "named"),
        ("different", "bitwise", "alarm"),
        ("same", "bitwise", "bitwise"),
        ("different", "told", "told"),
        ("different", "unsteady", "unsteady"),
    ],
)
def test_the_verdict_of_a_drill_before_the_kills(drill: str, kills: str, verdict: str) -> None:
    drills = [{"verdict": "same", "step": 1, "rank": 0, "detail": ""}, {"verdict": drill, "step": 3, "rank": 1, "detail": "why"}]
    found = named(Found(kills, "what came out"), drills)
    assert found.verdict == verdict
    assert verdict not in ("named", "alarm") or f"{drill}@3:1: why" in found.why


def test_the_evidence_has_what_was_found(tmp_path: Path) -> None:
    values = {
        "script": "one",
        "about": "a | b",
        "group": "basics",
        "expected": "told US1111",
        "found": "silent",
        "why": "x",
        "drills": ["same@1:0", "different@3:1: why"],
        "kills": ["forward@0:1"],
        "grades": ["proven: US4172: x", "drilled: US4173: y", "proven: US4172: z"],
        "alone": {},
        "wrong": "it is",
    }
    empty: dict[str, Any] = {"command": "", "recorded": "abc", "columns": [], "rows": []}
    save("conformance", {"scripts": {**empty, "view": "scripts"}, "grades": empty}, tmp_path)
    record([{**values, "found": "bitwise"}, {**values, "script": "gone"}], "aaaa", {"one", "gone"}, tmp_path)
    record([values, {**values, "script": "two", "found": "told", "wrong": ""}], "bbbb", {"one", "two"}, tmp_path)
    assert load("conformance", tmp_path)["grades"]["rows"] == []
    unproven = ["unproven: US4186: x", "unproven: US4187: y", "proven: US4172: x"]
    record([{**values, "script": "three", "found": "bitwise", "wrong": "", "grades": unproven}], "bbbb", {"one", "two", "three"}, tmp_path)
    reasons = load("conformance", tmp_path)["grades"]
    assert [(reason[:6], count) for reason, count in reasons["rows"]] == [("a loss", "1"), ("a sect", "1")]
    assert reasons["notes"] == ["3 incidents of scripts that are bitwise: 1 proven, 0 drilled, 2 unproven (33.3 % proven or drilled)."]
    record([values], "bbbb", {"one", "two"}, tmp_path)
    entry = load("conformance", tmp_path)["scripts"]
    assert entry["rows"][0] == {name: value for name, value in values.items() if name != "alone"} | {"commit": "bbbb"}
    assert [row["script"] for row in entry["rows"]] == ["one", "two"]
    assert entry["command"] and entry["commit"] == "bbbb" and "recorded" not in entry
    text = (tmp_path / "conformance.md").read_text()
    assert "| `one` | a \\| b | **WRONG** silent, expected told US1111 | 2 proven, 1 drilled |" in text
    assert "| `two` | a \\| b | told US1111 | 2 proven, 1 drilled |" in text
    assert "| Basics | 2 | 1 | 1 | 1 |" in text
    assert summary([values]) == "1 script: 1 silent; 1 not as expected"


def test_the_summary_counts_the_grades_of_bitwise_incidents_only() -> None:
    of_another = f"unproven: US4188: rank 1: {BORROWED}: x"
    rows = [
        {"found": "bitwise", "wrong": "", "grades": ["proven: US4172: x", "drilled: US4173: y", "unproven: US4186: z", of_another]},
        {"found": "told", "wrong": "", "grades": ["unproven: US4183: x"]},
    ]
    counted = "3 incidents of scripts that are bitwise: 1 proven, 1 drilled, 1 unproven (66.7 % proven or drilled)"
    assert summary(rows) == f"2 scripts: 1 bitwise, 1 told; 0 not as expected; {counted}"


def test_the_evidence_names_no_folder_of_a_machine(tmp_path: Path) -> None:
    said = f"it writes {tmp_path}/plain/final-0 at {scripts.FOLDER}/plain.py:9, next to /elsewhere/x"
    said += f", and reads {tempfile.gettempdir()}/tmpyc_3/snapshot.pt"
    (result,) = elsewhere([{"why": said, "kills": [], "drills": [said]}], tmp_path, Path(__file__).parents[2])
    shown = "it writes plain/final-0 at tests/conformance/scripts/plain.py:9, next to /elsewhere/x, and reads snapshot.pt"
    assert (result["why"], result["drills"]) == (shown, [shown])
