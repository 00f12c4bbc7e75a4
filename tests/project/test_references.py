"""The runs that jobs are compared with (`tests.references`) are made once, and again when anything changes on which they depend."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests import references
from tests.references import FOLDER, FRESH, OUTPUT, ROOT, STORE, Run, undisturbed

# Counts its runs in a file next to the folders of all runs.
SCRIPT = """
import sys
from pathlib import Path
import helper

folder = Path(sys.argv[1])
with (Path(__file__).parent / "runs.txt").open("a") as file:
    file.write("x")
(folder / "found.txt").write_text(helper.WORD + " ".join(sys.argv[2:]))
"""
FAILS = "\nsys.exit(3)\n"
WAITS = "\nimport os, select\nwhile not os.path.exists({gate!r}):\n    select.select([], [], [], 0.01)\n"
OTHER = """
import sys
from pathlib import Path
from tests import references

references.STORE = Path(sys.argv[1])
print("there", flush=True)
print(references.undisturbed(references.Run(Path(sys.argv[2]), ("FOLDER",), None)))
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(references, "STORE", tmp_path / "store")
    monkeypatch.setattr(references, "_made", set())
    monkeypatch.delenv(FRESH, raising=False)
    (tmp_path / "helper.py").write_text("WORD = 'one '\n")
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def _made(script: Path) -> int:
    path = script.parent / "runs.txt"
    return len(path.read_text()) if path.exists() else 0


def _run(script: Path, *arguments: str) -> Run:
    return Run(script, (FOLDER, *arguments), None)


def test_the_same_run_is_made_once(script: Path) -> None:
    folders = {undisturbed(_run(script, "a")) for _ in range(3)}
    (folder,) = folders
    assert _made(script) == 1
    assert (folder / "found.txt").read_text() == "one a"
    assert (folder / OUTPUT).read_text() == ""


def test_another_script_helper_argument_variable_or_file_is_another_run(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _run(script, "a")
    undisturbed(run)
    script.write_text(SCRIPT + "\n")
    undisturbed(run)
    (script.parent / "helper.py").write_text("WORD = 'two '  # another size: Python's cache tells sources apart by size and second\n")
    assert (undisturbed(run) / "found.txt").read_text() == "two a"
    assert (undisturbed(_run(script, "b")) / "found.txt").read_text() == "two b"
    undisturbed(Run(script, (FOLDER, "a"), None, {"NAME": "value"}))
    assert (undisturbed(Run(script, (FOLDER, "a"), None, files=("go on",))) / "go on").exists()
    assert _made(script) == 6
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    undisturbed(run)
    assert _made(script) == 7


def test_a_run_that_fails_is_not_kept(script: Path) -> None:
    script.write_text(SCRIPT + FAILS)
    for number in (1, 2):
        with pytest.raises(AssertionError, match="exit code 3"):
            undisturbed(_run(script))
        assert _made(script) == number
    assert not [path for path in references.STORE.iterdir() if path.suffix != ".lock"]


def test_two_processes_at_once_make_one_run(script: Path) -> None:
    gate = script.parent / "both are there"
    script.write_text(SCRIPT + WAITS.format(gate=str(gate)))
    command = [sys.executable, "-c", OTHER, str(references.STORE), str(script)]
    both = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.stdout.readline() for process in both if process.stdout is not None] == ["there\n"] * 2
    gate.touch()
    folders = {process.communicate(timeout=references.LIMIT)[0] for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert len(folders) == 1 and _made(script) == 1


def test_fresh_makes_it_again_once_in_a_process(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = undisturbed(_run(script))
    references._made.clear()  # as in another process
    monkeypatch.setenv(FRESH, "1")
    again = undisturbed(_run(script))
    assert again != before and before.is_dir(), "another process may be reading it"
    assert undisturbed(_run(script)) == again
    monkeypatch.delenv(FRESH)
    assert undisturbed(_run(script)) == again
    assert _made(script) == 2


def test_the_key_covers_what_a_script_runs_through() -> None:
    run = Run(ROOT / "tests" / "faults" / "jobs" / "train.py")
    found = {str(path.relative_to(ROOT)) for path in run._sources()}
    assert found >= {
        "tests/faults/jobs/train.py",
        "tests/faults/jobs/corruption.py",
        "tests/faults/jobs/fault_points.py",
        "tests/faults/jobs/networks.py",
        "src/understudy/worker/api/job.py",
        "src/understudy/worker/data/loops.py",
        "src/understudy/worker/fault_injection/chaos.py",
    }
    support = {path.name for path in references.imported(ROOT / "tests" / "integration" / "jobs" / "mixed.py")}
    assert {"mixed.py", "support.py"} <= support


def test_pytest_would_keep_them_in_the_same_place(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.cache is not None
    assert pytestconfig.cache.mkdir("references") == STORE
