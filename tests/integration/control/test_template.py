"""Workers forked from a template: a script sees no difference, and a failure of the template harms no worker."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.integration.processes import send, wait_until
from tests.integration.training import JOBS, LONG, Outcome, Training, template_of, training
from tests.message_texts import has

from understudy.agent.config import AgentConfig
from understudy.agent.processes import NCCL_WATCHDOG, hash_seed, worker_environment
from understudy.messages import agents, forming
from understudy.worker.process.template import devices_open

__all__ = ["training"]

OF_A_RUN = {"MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_USE_AGENT_STORE"}
OF_A_RUN |= {"MASTER_ADDR", "TORCHELASTIC_MAX_RESTARTS"}  # an address instead of a name; our default is 3 (docs/reference/cli.md)
OURS = {
    "UNDERSTUDY_ADDRESS",
    "UNDERSTUDY_NODE",
    "UNDERSTUDY_DOMAIN",
    "UNDERSTUDY_RUN_DIR",
    "UNDERSTUDY_WORKER",
    "TORCH_CPP_LOG_LEVEL",
    "PYTHONHASHSEED",
    "RES_OPTIONS",
    "FAULTS",
}
WATCHDOG = set(NCCL_WATCHDOG) | {"TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"}
OURS |= WATCHDOG
OF_A_RUN |= WATCHDOG  # torchrun lets it end processes
OURS |= {"TORCHINDUCTOR_CACHE_DIR"}  # importing torch's compiler sets it, which a script's first optimizer does


def _seen(outcome: Outcome) -> list[dict[str, Any]]:
    assert outcome.code == 0, outcome.output
    text = [path.read_text().replace(str(outcome.folder), "FOLDER") for path in sorted(outcome.folder.glob("seen-*.json"))]
    return [json.loads(part) for part in text]


def test_a_script_finds_what_it_would_find_in_a_process_of_its_own_and_under_torchrun(training: Training) -> None:
    forked = _seen(training.begin("surroundings.py", "x", spares=0).ends())
    alone = _seen(training.begin("surroundings.py", "x", spares=0, UNDERSTUDY_FORK="0").ends())
    torchrun = _seen(training.torchrun("surroundings.py", "x"))
    chances = {value for rank in forked for value in rank["once"]["chance"]}
    assert len(chances) == 8, "what is not seeded differs from rank to rank"
    for rank, (one, other, third) in enumerate(zip(forked, alone, torchrun, strict=True)):
        assert one["once"]["command"][-4:] == other["once"]["command"][-4:], "the script and its arguments"
        assert f"w{rank}" in one["once"]["command"], "ps shows which worker it is"
        assert f"UNDERSTUDY_WORKER=w{rank}" in one["kernel's environment"], "so what it starts is found and ended with it"
        assert other["environment"].pop("UNDERSTUDY_FORK") == "0"
        other["kernel's environment"].remove("UNDERSTUDY_FORK=0")
        assert all(part["environment"].pop("MASTER_PORT") for part in (one, other, third))
        for key, value in other.items():
            assert key == "once" or one[key] == value, key
        under, here = third["environment"], one["environment"]
        assert under.keys() - here.keys() == set()
        assert here.keys() - under.keys() <= OURS
        assert {name: here[name] for name in under if name not in OF_A_RUN} == {n: v for n, v in under.items() if n not in OF_A_RUN}
        for key in ("arguments", "flags", "umask and priority", "collection", "torch", "sum", "limits"):
            assert one[key] == third[key], key


def test_a_module_is_run_as_torchrun_runs_it(training: Training) -> None:
    understudy = ["-m", "understudy.cli", "run", "--spares", "0", "--run-dir", "FOLDER/run", "-m"]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "-m"]
    (one,), (other,) = (_seen(training.start(command, "surroundings", "x").ends()) for command in (understudy, torchrun))
    assert one["main"] == other["main"] == ["__main__", str(JOBS / "surroundings.py"), str(JOBS / "surroundings.py"), True]
    for key in ("arguments", "path"):
        assert one[key] == other[key], key


def test_hashes_are_the_same_on_every_node_unless_the_user_sets_them() -> None:
    assert hash_seed("a job") == hash_seed("a job") != hash_seed("another one")
    assert all(0 < int(hash_seed(str(job))) < 1 << 32 for job in range(100))
    config = AgentConfig("a job", Path(), "node0", 0, "127.0.0.1", ("script.py",), 1)
    assert worker_environment(config, {}, "w0")["PYTHONHASHSEED"] == hash_seed("a job")
    assert worker_environment(config, {"PYTHONHASHSEED": "7"}, "w0")["PYTHONHASHSEED"] == "7"
    assert worker_environment(config, {"RES_OPTIONS": "rotate"}, "w0")["RES_OPTIONS"] == "rotate"


def test_the_watchdog_of_nccl_ends_no_worker_whatever_the_user_sets() -> None:
    config = AgentConfig("a job", Path(), "node0", 0, "127.0.0.1", ("script.py",), 1)
    names = ["TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_RETHROW_CUDA_ERRORS", "TORCH_NCCL_ENABLE_MONITORING"]
    for given in ({}, dict.fromkeys(names, "1")):
        environment = worker_environment(config, given, "w0")
        assert [environment[name] for name in names] == ["0"] * 3


WATCH = """
import sys, os

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name in ("torch", "resource") and "understudy.worker" in sys.orig_argv:
            with open(os.environ["IMPORTS"], "a") as file:
                file.write(f"{name} {sys.argv}\\n")

sys.meta_path.insert(0, Watch())
"""


@pytest.mark.parametrize("fork", ["0", "1"])
def test_what_is_imported_ahead_of_the_script_sees_its_arguments(training: Training, tmp_path: Path, fork: str) -> None:
    """torch in the template, and the script's own imports in each worker."""
    (tmp_path / "sitecustomize.py").write_text(WATCH)
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    found = tmp_path / "imports.txt"
    outcome = training.begin("surroundings.py", "x", "--flag", spares=0, UNDERSTUDY_FORK=fork, PYTHONPATH=path, IMPORTS=str(found)).ends()
    arguments = _seen(outcome)[0]["arguments"]
    assert arguments == [str(JOBS / "surroundings.py"), "FOLDER", "x", "--flag"]
    seen = found.read_text().replace(str(outcome.folder), "FOLDER").splitlines()
    assert set(seen) == {f"torch {arguments}", f"resource {arguments}"}


def test_a_killed_template_is_replaced(training: Training) -> None:
    job = training.start(
        ["-m", "understudy.cli", "run", "--nproc-per-node", "1", "--spares", "1", "--run-dir", "FOLDER/run"], "surroundings.py", "wait"
    )
    template = template_of(job.folder)
    send(template, signal.SIGKILL)  # while it imports, with two workers asked for

    def spare() -> dict[str, Any] | None:
        found = job.status()["spares"]
        return found[0] if found and found[0]["state"] == "warm" else None

    wait_until(spare, "a warm spare", LONG)
    first = spare()
    assert first is not None
    second = template_of(job.folder, template)
    send(second, signal.SIGKILL)
    send(first["pid"], signal.SIGKILL)
    wait_until(lambda: (found := spare()) is not None and found["pid"] != first["pid"], "another spare", LONG)
    third = template_of(job.folder, second)
    (job.folder / "end").touch()
    outcome = job.ends()
    assert outcome.code == 0, outcome.output
    assert outcome.incidents == []
    assert not Path(f"/proc/{third}").exists(), "it has ended with the job"


def test_a_template_that_cannot_import_torch_reports_it(training: Training, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "torch.py").write_text("raise ImportError('libsomething.so.1: cannot open shared object file')\n")
    path = f"{broken}:{os.environ.get('PYTHONPATH', '')}"
    outcome = training.begin("surroundings.py", PYTHONPATH=path).ends()
    assert outcome.code == 1
    assert has(outcome.output, agents.CANNOT_START) and has(outcome.output, agents.TEMPLATE_ENDED)
    assert has(outcome.output, forming.WORKER_NOT_STARTED, node="node0", worker="w0")
    assert "ImportError: libsomething.so.1: cannot open shared object file" in outcome.output


def test_an_open_device_is_noticed(tmp_path: Path) -> None:
    device = tmp_path / "device0"
    assert devices_open((str(device),)) == ""
    with device.open("w"):
        assert devices_open((str(device),)) == str(device)
