"""Stand-ins for Slurm's programs: small scripts on PATH that write down how they were called, and print what a test gives them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

_SCRIPT = """#!{python} -IS
import json, os, sys
words = [{name!r}, *sys.argv[1:]]
call = {{"words": words, "given": sys.stdin.read(), "environment": dict(os.environ)}}
with open({log!r}, "a") as log:
    log.write(json.dumps(call) + "\\n")
for beginning, output, error, code in json.load(open({answers!r})):
    if " ".join(words).startswith(beginning):
        sys.stdout.write(output)
        sys.stderr.write(error)
        sys.exit(code)
"""
NAMES = ("sinfo", "squeue", "scontrol", "sbatch", "scancel", "srun", "sbcast")


class Programs:
    """Nothing else is on PATH."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._log, self._answers = folder / "bin", folder / "log", folder / "answers"
        self._folder.mkdir()
        self._given: list[tuple[str, str, str, int]] = []
        self.answer("nothing")
        for name in NAMES:
            script = self._folder / name
            script.write_text(_SCRIPT.format(python=sys.executable, name=name, log=str(self._log), answers=str(self._answers)))
            script.chmod(0o755)
        monkeypatch.setenv("PATH", str(self._folder))

    def answer(self, beginning: str, output: str = "", error: str = "", code: int = 0) -> None:
        """To commands that begin like this. What is given later counts more; what has no answer prints nothing, and goes well."""
        self._given.insert(0, (beginning, output, error, code))
        self._answers.write_text(json.dumps(self._given))

    def remove(self, name: str) -> None:
        (self._folder / name).unlink()

    def calls(self, name: str = "") -> list[list[str]]:
        """What was called so far, word by word, without the options that set how it is printed."""
        words = [call["words"] for call in self._calls() if call["words"][0].startswith(name)]
        return [[word for word in call if word not in ("--noheader", "--quiet")] for call in words]

    def last(self) -> tuple[str, dict[str, str]]:
        """What the last one was given to read, and its environment."""
        call = self._calls()[-1]
        return call["given"], call["environment"]

    def _calls(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.read_text().splitlines()] if self._log.exists() else []
