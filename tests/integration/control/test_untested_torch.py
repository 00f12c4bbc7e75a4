"""A torch that Understudy is not tested with: reported in a line, and refused by name if it lacks something that every job needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.training import LONG, Training, training, understudy
from tests.message_texts import has

from understudy.common import tested
from understudy.messages import doctor, tools

__all__ = ["training"]

SITE = """
# As if another torch were installed: its version differs, and some of its names are gone.
import importlib.metadata as metadata
import sys

GONE = {gone!r}
real = metadata.version
metadata.version = lambda name: {version!r} if name == "torch" else real(name)


class Other:
    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        from importlib.util import find_spec

        spec = find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            module.__version__ = {version!r}
            for name in GONE:
                delattr(module, name)

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Other())
"""
UNTESTED = "2.99.0"
TOLD = f"understudy: {tools.TORCH_UNTESTED(version=UNTESTED, first=tested.TORCH[0], last=tested.TORCH[1])}"
SCRIPT = "import torch\nprint('the script runs under', torch.__version__)\n"


def other_torch(folder: Path, version: str = UNTESTED, gone: tuple[str, ...] = ()) -> str:
    """A PYTHONPATH with which every Python has another torch."""
    (folder / "sitecustomize.py").write_text(SITE.format(gone=gone, version=version))
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH", "")])])


@pytest.mark.parametrize("fork", ["1", "0"], ids=["forked", "alone"])
def test_a_missing_internal_ends_the_job_with_its_name(training: Training, tmp_path: Path, fork: str) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    path = other_torch(tmp_path, gone=("_foreach_copy_",))
    job = training.begin(str(tmp_path / "script.py"), spares=0, PYTHONPATH=path, UNDERSTUDY_FORK=fork)
    outcome = job.ends()
    assert outcome.code == 1
    assert "the script runs" not in outcome.output and "Traceback" not in outcome.output
    lines = outcome.output.splitlines()
    assert lines[0].startswith(TOLD)
    (line,) = [line for line in lines if line.startswith("understudy: ") and "foreach-copy" in line]
    first, last = tested.TORCH
    assert has(line, doctor.LACKS_INTERNAL, torch=f"torch {UNTESTED}", internal="foreach-copy", first=first, last=last), line
    assert "module 'torch' has no attribute '_foreach_copy_'" in line


def test_a_job_runs_under_another_torch_that_has_all(training: Training, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    outcome = training.begin(str(tmp_path / "script.py"), ranks=1, spares=0, PYTHONPATH=other_torch(tmp_path)).ends()
    assert f"the script runs under {UNTESTED}" in outcome.output
    assert outcome.output.splitlines()[0].startswith(TOLD)
    assert doctor.LACKS_INTERNAL.code not in outcome.output


REFUSAL = "from understudy.worker.doctor.start import refusal; print(refusal())"


def _refusal(path: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", REFUSAL], capture_output=True, text=True, timeout=LONG, env={**os.environ, "PYTHONPATH": path}, check=True
    )
    return done.stdout.strip()


def test_missing_optional_parts_do_not_prevent_a_start(tmp_path: Path) -> None:
    path = other_torch(tmp_path)
    with (tmp_path / "sitecustomize.py").open("a") as site:
        site.write("sys.modules['torch.distributed.pipelining'] = None\n")
    assert _refusal(path) == ""


def test_nothing_is_tried_under_a_tested_torch(tmp_path: Path) -> None:
    """The missing part would be found by any probe."""
    assert _refusal(other_torch(tmp_path, version=f"{tested.TORCH[1]}.99", gone=("_foreach_copy_",))) == ""


def test_a_torch_that_ends_its_process_is_refused(tmp_path: Path) -> None:
    path = other_torch(tmp_path)
    with (tmp_path / "sitecustomize.py").open("a") as site:
        site.write("if '--internals' in sys.orig_argv:\n    import os, signal\n    os.kill(os.getpid(), signal.SIGSEGV)\n")
    assert has(_refusal(path), doctor.PROBE_ENDED, how="SIGSEGV")


def test_the_doctor_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", other_torch(tmp_path, gone=("_foreach_copy_",)))
    answer = understudy("doctor")
    assert answer.returncode == 1
    (line,) = [line for line in answer.stdout.splitlines() if "foreach-copy" in line]
    assert line.startswith("│ missing")
    assert UNTESTED in answer.stdout and "Traceback" not in answer.stdout + answer.stderr
