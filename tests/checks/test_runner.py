"""What all checks share: options and results with bounds, a process for each, and the report."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError
from tests.integration.processes import marked
from tests.message_texts import has

from understudy.checks import isolation
from understudy.checks.base import LISTED, Check, Figure, Report, Result, Verdict
from understudy.checks.isolation import isolated
from understudy.checks.options import NAMES, Options
from understudy.checks.registry import CHECKS
from understudy.checks.runner import run_all
from understudy.common.names import TOKEN_VARIABLE
from understudy.messages import node_checks
from understudy.messages.base import Message

FINE = Result(check="disk", verdict=Verdict.PASSED, detail="fine")


def answers(result: Result) -> str:
    return f"import sys; sys.stdout.write({result.model_dump_json()!r})"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Result]:
    """What comes of a check when a program is in the place of its process."""

    def run(code: str) -> Result:
        monkeypatch.setattr(isolation, "COMMAND", (sys.executable, "-c", code))
        return isolated("disk", Options())

    return run


def test_each_name_has_its_check() -> None:
    assert tuple(CHECKS) == NAMES
    assert all(kind.name == name and issubclass(kind, Check) for name, kind in CHECKS.items())


def test_which_are_chosen() -> None:
    assert Options().chosen() == list(NAMES)
    assert Options(only=("disk", "compute")).chosen() == ["compute", "disk"]
    assert Options(skip=("gpu", "network")).chosen() == ["detectors", "compute", "memory", "disk"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"only": ["fan"]},
        {"only": ["disk"], "skip": ["disk"]},
        {"memory_share": 0.95},
        {"memory_share": float("nan")},
        {"memory_most": 0},
        {"disk_size": 1 << 40},
        {"peers": ["host"]},
        {"peers": ["a:1"] * 65},
        {"network_seconds": 61},
        {"compute_passes": 0},
        {"token": "secret"},
    ],
)
def test_options_have_bounds(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Options.model_validate(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"check": "fan"},
        {"verdict": "maybe"},
        {"figures": [{"name": "size", "value": float("inf"), "unit": "s"}]},
        {"figures": [{"name": "size", "value": 1.0}] * 2001},
        {"notes": ["dust"] * 101},
        {"seconds": -1.0},
        {"more": 1},
    ],
)
def test_results_have_bounds(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Result.model_validate({**FINE.model_dump(), **wrong})


def test_texts_are_made_fit_to_show() -> None:
    found = Result(check="disk", verdict=Verdict.FAILED, detail="\x1b[2J" + "long " * 10000)
    assert found.detail.startswith("\\x1b[2J") and len(found.detail) < 4100


def test_many_failures_are_counted() -> None:
    found = CHECKS["disk"](Options()).judged([f"failure {number}" for number in range(LISTED + 5)], "")
    assert found.detail.endswith(f"failure {LISTED - 1}; {node_checks.MORE_FAILURES(count=5)}")


def report(*verdicts: Verdict) -> Report:
    return Report(node="n", began=0.0, seconds=1.0, results=tuple(Result(check="disk", verdict=v, detail="") for v in verdicts))


def test_who_passes() -> None:
    assert report(Verdict.PASSED, Verdict.SKIPPED).passed
    assert not report(Verdict.PASSED, Verdict.FAILED).passed
    assert not report(Verdict.SKIPPED).passed  # nothing is known
    assert not report().passed


def test_that_it_passed_is_not_believed() -> None:
    values = json.loads(report(Verdict.FAILED).model_dump_json())
    assert values["passed"] is False
    assert not Report.model_validate({**values, "passed": True}).passed


def test_a_report_goes_through_json() -> None:
    measured = FINE.model_copy(update={"figures": (Figure(name="f", value=1.5, unit="s"),)})
    sent = Report(node="n", began=1.0, seconds=2.0, results=(measured, FINE))
    assert Report.model_validate_json(sent.model_dump_json()) == sent


def test_a_process_that_answers(program: Callable[[str], Result]) -> None:
    found = program(answers(FINE))
    assert (found.verdict, found.detail) == (Verdict.PASSED, "fine") and found.seconds > 0


@pytest.mark.parametrize(
    ("code", "message", "arguments"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGBUS)", node_checks.BAD_MEMORY, {"signal": "SIGBUS"}),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", node_checks.KILLED, {"signal": "SIGKILL"}),
        ("import sys; sys.exit(3)", node_checks.NO_RESULT, {"exit_code": 3}),
        ("print('{}')", node_checks.NO_RESULT, {}),
        (answers(FINE.model_copy(update={"check": "memory"})), node_checks.NO_RESULT, {}),
        ("print('[' * 10_000_000)", node_checks.TOO_MUCH_OUTPUT, {"most": 4194304}),
    ],
)
def test_a_process_that_does_not(program: Callable[[str], Result], code: str, message: Message, arguments: dict[str, object]) -> None:
    found = program(code)
    assert found.verdict is Verdict.FAILED
    assert has(found.detail, message, **arguments)


def test_one_that_hangs_is_ended_with_what_it_has_started(program: Callable[[str], Result], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CHECKS["disk"], "__init__", lambda self, options, token="": setattr(self, "limit", 0.5))
    monkeypatch.setattr(isolation, "START", 0.5)
    with marked() as mark:
        for name, value in mark.environment().items():
            monkeypatch.setenv(name, value)
        found = program("import subprocess, signal; subprocess.Popen(['sleep', '1000']); signal.pause()")
        assert (found.verdict, found.detail) == (Verdict.FAILED, node_checks.NOT_DONE(seconds=1, stuck=""))
        mark.wait_until_none()  # processes that were killed with their group are not ours to wait for


def test_what_a_process_leaves_running_is_ended(program: Callable[[str], Result], monkeypatch: pytest.MonkeyPatch) -> None:
    with marked() as mark:
        for name, value in mark.environment().items():
            monkeypatch.setenv(name, value)
        left = "import subprocess; subprocess.Popen(['sleep', '1000'], stdout=subprocess.DEVNULL); "
        assert program(left + answers(FINE)).verdict is Verdict.PASSED
        mark.wait_until_none()


def test_the_token_comes_on_standard_input_and_not_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, program: Callable[[str], Result]
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "a secret")
    shown = (
        "import json, os, sys; token = json.loads(sys.stdin.readline())['token']; assert token == 'nekot eht'[::-1]; "
        f"assert token not in str(sys.orig_argv) and {TOKEN_VARIABLE!r} not in os.environ; "
    )
    monkeypatch.setattr(isolation, "COMMAND", (sys.executable, "-c", shown + answers(FINE)))
    assert isolated("disk", Options(), "the token").verdict is Verdict.PASSED


def test_a_check_that_raises_has_failed(tmp_path: Path) -> None:
    """In its real process: no number of a CPU fits into what this option wants."""
    found = isolated("disk", Options(folder=str(tmp_path / "a\0b")))
    assert found.verdict is Verdict.FAILED
    assert has(found.detail, node_checks.RAISED, kind="ValueError")


def test_all_of_them(tmp_path: Path) -> None:
    begun = list[str]()
    before = time.time()
    options = Options(only=("disk", "gpu"), folder=str(tmp_path), disk_size=4, min_free=0)
    found = run_all(options, begins=lambda name: begun.append(name))
    assert begun == ["disk", "gpu"] == [result.check for result in found.results]
    assert found.began >= before and found.seconds >= sum(result.seconds for result in found.results)
    assert found.results[0].verdict is Verdict.PASSED


def test_the_module_prints_json(tmp_path: Path) -> None:
    def ask(options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "understudy.checks", "--json", options], capture_output=True, text=True)

    given = {"only": ["disk"], "folder": str(tmp_path), "disk_size": 4, "min_free": 0}
    done = ask(json.dumps(given))
    assert done.returncode == 0 and Report.model_validate_json(done.stdout).passed, done.stderr
    done = ask(json.dumps({**given, "folder": str(tmp_path / "away")}))
    assert done.returncode == 1 and not Report.model_validate_json(done.stdout).passed
    for wrong, words in (("{", "--json"), ("[]", "--json"), ('{"fan": 1}', "there is no 'fan'"), ('{"only": ["fan"]}', "'detectors'")):
        done = ask(wrong)
        assert (done.returncode, done.stdout) == (2, "")
        assert words in done.stderr and "Traceback" not in done.stderr


def test_the_package_does_not_import_torch() -> None:
    code = "import sys, understudy.checks.__main__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
