"""`understudy doctor`: its findings, its conclusions, and that a torch that does not work is a finding like any other."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.message_texts import has
from typer.testing import CliRunner

import understudy.cli
from understudy.cli import doctor_command
from understudy.cli.doctor_command import examined, of_python, of_run_directories, of_system, of_worker
from understudy.cli.show import doctor_view
from understudy.common import tested
from understudy.common.finding import LIMITED, MISSING, OK, Finding, can_run
from understudy.links.lifeline import Lifeline
from understudy.messages import doctor, tools
from understudy.worker.doctor import base, findings, machine
from understudy.worker.doctor.base import ProbeResult
from understudy.worker.doctor.internals import INTERNALS

GONE = ProbeResult("register-backend", base.MISSING, "exchange", ("transport.groups",), "it is gone")
SLOWER = ProbeResult("torch-generators", base.MISSING, "whether they move", ("state.rng_fingerprint",), "they hide", "read at every step")
LIMITS: dict[str, int | None] = {"open files": 1 << 16, "open files at most": 1 << 20, "processes": None, "/dev/shm free": 1 << 33}


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    """Return the report of the worker's side here."""
    os.environ["NCCL_MADE_UP"] = os.environ["UNDERSTUDY_TOKEN"] = "not to be shown"
    try:
        found = of_worker()
    finally:
        del os.environ["NCCL_MADE_UP"], os.environ["UNDERSTUDY_TOKEN"]
    assert isinstance(found, dict), found
    return found


def test_all_of_it_is_found(whole: dict[str, Any]) -> None:
    import torch

    assert whole["versions"]["torch"] == torch.__version__
    assert whole["versions"]["understudy"] == understudy.__version__
    assert whole["tested"] == {"torch": list(tested.TORCH), "python": list(tested.PYTHON)}
    assert [one["name"] for one in whole["internals"]] == [internal.name for internal in INTERNALS]
    assert not [one for one in whole["internals"] if one["status"] == base.MISSING]
    assert can_run(Finding(**one) for one in whole["findings"])
    assert whole["lifeline"] is True
    assert whole["groups are joined again"] in ("in place, by torch's _reconfigure", "by a new communicator under a fresh backend number")
    assert whole["system"]["kernel"].startswith("Linux ")


def test_of_the_environment_only_names_are_shown_and_no_tokens(whole: dict[str, Any]) -> None:
    assert "NCCL_MADE_UP" in whole["variables"]
    assert "UNDERSTUDY_TOKEN" not in whole["variables"]
    assert "not to be shown" not in json.dumps(whole)


def test_the_names_that_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GLOO_SOCKET_IFNAME", "TORCH_SHOW", "UNDERSTUDY_STRICT", "UNDERSTUDY_TOKEN", "AWS_NAME", "XNCCL_DEBUG", "TORCH_API_KEY"):
        monkeypatch.setenv(name, "1")
    assert {"GLOO_SOCKET_IFNAME", "TORCH_SHOW", "UNDERSTUDY_STRICT"} <= set(machine.variables())
    assert not {"UNDERSTUDY_TOKEN", "AWS_NAME", "XNCCL_DEBUG", "TORCH_API_KEY"} & set(machine.variables())


def test_a_tested_torch_and_another() -> None:
    assert findings.of_torch(f"{tested.TORCH[0]}.0+cpu", "CPU").status == OK
    other = findings.of_torch("2.99.0", "CPU")
    assert other.status == LIMITED and f"torch {tested.TORCH[0]} to {tested.TORCH[1]}" in other.to_do
    assert of_python(f"{tested.PYTHON[1]}.9").status == OK
    first, last = tested.PYTHON
    assert of_python("3.99.0") == Finding(
        "Python", LIMITED, tools.PYTHON_UNTESTED(version="3.99.0", first=first, last=last), f"use Python {first} to {last}"
    )


def test_internals_that_are_missing() -> None:
    fine = ProbeResult("tcp-store", base.OK, "stores", ("transport.rendezvous",))
    gone, slower = findings.of_internals([fine, GONE, SLOWER])
    assert (gone.status, slower.status) == (MISSING, LIMITED)
    assert "it is gone" in gone.detail and "read at every step" in slower.detail and gone.to_do and slower.to_do
    (all_fine,) = findings.of_internals([fine, ProbeResult("nccl-class", base.NOT_HERE, "NCCL", ())])
    assert all_fine.status == OK and "all 1 " in all_fine.detail


def test_findings_about_gpus() -> None:
    gpu = {"name": "H100", "memory": 80 << 30}
    assert [one.status for one in findings.of_gpus([], "", "CPU", [])] == [OK]
    (without,) = findings.of_gpus([gpu], "", "CUDA 13.0", ["NVIDIA"])
    assert without.status == LIMITED and has(without.detail, doctor.NO_NCCL, library="NCCL")
    found = findings.of_gpus([gpu, gpu], "2.30.7", "CUDA 13.0", ["NVIDIA"])
    assert list(found) == [Finding("GPUs", OK, "H100 (80 GiB), H100 (80 GiB); NCCL 2.30.7")]


def test_findings_about_gpus_of_amd() -> None:
    gpu = {"name": "MI300X", "memory": 192 << 30}
    untested, seen = findings.of_gpus([gpu], "2.22.3", "ROCm 7.0", ["AMD"])
    assert untested.status == LIMITED and has(untested.detail, doctor.ROCM_UNTESTED, build="ROCm 7.0")
    assert seen == Finding("GPUs", OK, "MI300X (192 GiB); RCCL 2.22.3")
    (unseen,) = findings.of_gpus([], "", "CUDA 13.0", ["NVIDIA", "AMD"])
    assert unseen.status == LIMITED and has(unseen.detail, doctor.GPUS_NOT_SEEN, vendors="NVIDIA and AMD", build="CUDA 13.0")
    assert can_run([untested, seen, unseen]), "jobs run all the same"


def test_devices_are_known_by_what_the_kernel_calls_them(tmp_path: Path) -> None:
    for name in ("nvidiactl", "nvidia-uvm", "dri", "null"):
        (tmp_path / name).touch()
    assert machine.vendors(tmp_path) == []
    (tmp_path / "kfd").touch()
    assert machine.vendors(tmp_path) == ["AMD"]
    (tmp_path / "nvidia0").touch()
    assert machine.vendors(tmp_path) == ["NVIDIA", "AMD"]


@pytest.mark.parametrize(
    ("limits", "limited"),
    [
        ({}, []),
        ({"open files": 256}, ["open files"]),
        ({"processes": 100}, ["processes"]),
        ({"/dev/shm free": 64 << 20}, ["shared memory"]),
        ({"/dev/shm free": None}, ["shared memory"]),
        ({"open files": None}, []),
    ],
)
def test_limits_that_are_too_low_come_with_a_remedy(limits: dict[str, int | None], limited: list[str]) -> None:
    found = list(findings.of_limits({**LIMITS, **limits}))
    assert [one.what for one in found if one.status == LIMITED] == limited
    assert all(bool(one.to_do) == (one.status == LIMITED) for one in found)


def test_waits_and_lifelines() -> None:
    seen = findings.of_waits({"symbols": True, "seen": True}, "x86_64")
    unseen = [findings.of_waits({"symbols": symbols, "seen": False}, "riscv64") for symbols in (True, False)]
    assert seen.status == OK and [one.status for one in unseen] == [LIMITED, LIMITED]
    assert "kernel" in unseen[0].detail and "riscv64" in unseen[1].detail
    assert findings.of_lifeline(True).status == OK and findings.of_lifeline(False).status == LIMITED


def test_a_lock_that_stays_closed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lifeline, "wait", lambda self: False)
    assert machine.lifeline() is False


def test_what_the_command_line_sees_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [one.status for one in of_system()] == [OK, OK]
    assert of_run_directories(tmp_path).status == OK
    missing = of_run_directories(tmp_path / "missing")
    assert missing.status == LIMITED and has(missing.detail, tools.NO_RUN_DIRECTORIES, folder=tmp_path / "missing")

    def refused(pid: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refused)
    found = list(of_system())
    assert [one.status for one in found] == [MISSING, OK] and has(found[0].detail, tools.NO_PIDFDS)


CODE = [
    ("raise ImportError('no libtorch_cpu.so')", tools.TORCH_UNUSABLE(reason="ImportError: no libtorch_cpu.so")),
    ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", tools.TORCH_ENDED_PROCESS(signal="SIGSEGV")),
]


@pytest.mark.parametrize(("code", "expected"), CODE, ids=["import", "crash"])
def test_a_torch_that_does_not_work_is_one_finding(code: str, expected: str) -> None:
    found = of_worker((sys.executable, "-c", code))
    assert isinstance(found, Finding)
    assert (found.status, found.detail) == (MISSING, expected) and found.to_do


def test_one_that_never_answers_is_given_up() -> None:
    found = of_worker((sys.executable, "-c", "import threading; threading.Event().wait()"), limit=0.2)
    assert isinstance(found, Finding) and (found.status, found.detail) == (MISSING, tools.TORCH_TIMED_OUT(seconds=0.2))


def _doctor(*flags: str) -> tuple[int, str]:
    result = CliRunner().invoke(understudy.cli.app, ["doctor", *flags], env={"COLUMNS": "200"})
    return result.exit_code, result.stdout


def test_without_torch_there_is_one_clear_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_command, "find_spec", lambda name: None)
    code, output = _doctor("--json")
    found = json.loads(output)
    assert code == 1 and found["can run"] is False
    (missing,) = [one for one in found["findings"] if one["status"] == MISSING]
    assert missing["what"] == "torch" and missing["detail"] == tools.TORCH_MISSING(python=sys.executable)
    assert f"pip install 'torch>={tested.TORCH[0]},<" in missing["to_do"]
    code, output = _doctor()
    assert code == 1 and tools.TORCH_MISSING.code in output and "Traceback" not in output


def test_the_exit_code_shows_whether_a_job_can_run(monkeypatch: pytest.MonkeyPatch, whole: dict[str, Any]) -> None:
    def found(*more: Finding) -> Any:
        return lambda: {**whole, "findings": [*whole["findings"], *(vars(one) for one in more)]}

    for more, code in (([], 0), ([Finding("a", LIMITED, "b", "c")], 0), ([Finding("a", MISSING, "b", "c")], 1)):
        monkeypatch.setattr(doctor_command, "of_worker", found(*more))
        assert _doctor()[0] == code
        assert json.loads(_doctor("--json")[1])["can run"] is (code == 0)


def test_the_table_has_every_finding_and_what_to_do(monkeypatch: pytest.MonkeyPatch, whole: dict[str, Any]) -> None:
    more = Finding("waits [red]", LIMITED, "cannot be seen", "let them")
    monkeypatch.setattr(doctor_command, "of_worker", lambda: {**whole, "findings": [*whole["findings"], vars(more)]})
    console = Console(width=300, record=True, file=io.StringIO())
    console.print(doctor_view(examined()))
    shown = console.export_text()
    rows = [line for line in shown.splitlines() if line.startswith("│")]
    assert all(any(one["what"] in row and one["detail"] in row for row in rows) for one in whole["findings"])
    assert "waits [red]" in rows[-1] and "let them" in rows[-1]
    assert f"torch {whole['versions']['torch']}" in shown and whole["system"]["kernel"] in shown
