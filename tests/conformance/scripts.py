"""The scripts of the suite: their headers, and the plan of kills of each.

A script tells about itself in comments ahead of its first statement:

    # ranks: 3                    how many (default 3)
    # expect: bitwise             or refused CODE "NAME", or told CODE "NAME": the message's code, and what it names; one of them may lack;
                                  or not silent, of a script that hides states: see `reported`
    # kills: forward@0:1 ...      POINT@STEP:RANK instead of the plan below
    # group: optimizers           its chapter in the table
    # arguments: --x 1            of the script
    # limit: 300                  seconds that an undisturbed run may take (default 120)
    # needs: lightning            packages; where one is not installed, the script is skipped

Kills happen one after the other, each once its step is committed, so each waits for a step after the recovery from the one
before. Two in a row with the same step and point are two at once: the second rank waits at the point for the first to be killed.
A point in a newcomer's life (`NEWCOMERS`) belongs to the kill before it, of the same rank, which must be the first one of that rank:
its step means nothing.

How to write one: let `scripts/_common.py` join, seed, make the model, the data and the loader, and start the trace, where the script is not
about these; its docstring has an example and the rules. The loop, the step and all state stay in the script, because the census looks at
the script's own names, frames and source. `scripts/_trace.py` says what a line and the final state hold. A script that shows the plain
thing in full, as a tutorial does (`ddp_plain`, `hsdp_plain`, `like_...`), uses the trace alone.

Limits: a step number counts what `job.committed` counts, so the plan fits scripts of 12 steps or a few more; a script with fewer has
one of its own. A point that a script never reaches is no failure, but the table says what struck, and `verdict` asks for enough.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from understudy.chaos.points import POINTS

FOLDER = Path(__file__).parent / "scripts"
NOT_SILENT = "not silent"
VERDICTS = ("bitwise", "refused", "told", NOT_SILENT)
NEWCOMERS = ("newcomer", "transfer", "verify", "verified", "attached")
LIMIT = 120.0  # seconds; generous, because machines are slow and busy

_HEADER = re.compile(r"#\s*(ranks|expect|kills|group|arguments|limit|needs)\s*:\s*(.+?)\s*$")
_KILL = re.compile(r"([a-z][a-z ]*?)@(\d+):(\d+)(?:\s*,?\s*)")
_EXPECT = re.compile(r'(bitwise|not silent)|(refused|told)(?= )(?: (US\d{4}))?(?: "(.+)")?')


@dataclass(frozen=True)
class Kill:
    """The worker that holds `rank` is killed at `point` of `understudy.chaos.points`, once `step` steps are committed."""

    point: str
    step: int
    rank: int

    @property
    def of_newcomer(self) -> bool:
        return self.point in NEWCOMERS

    def __str__(self) -> str:
        return f"{self.point}:{self.rank}" if self.of_newcomer else f"{self.point}@{self.step}:{self.rank}"


def plan(ranks: int) -> tuple[Kill, ...]:
    """For a script that has none of its own: every phase once, with about 12 steps.

    Every rank keeps its copies with two others, so of two at once the copies are with a third. Of two ranks alone, none are killed at once,
    and no newcomer, which must be the first one of its rank.
    Rank 0 is lost last. Until then a drill of it, as in step 8, shows what a job's first workers have and a newcomer has not.
    """
    last = ranks - 1
    kills = [
        Kill("backward", 0, 1),  # in the first step
        Kill("forward", 2, last),
        Kill("verify", 2, last),  # and its newcomer
        Kill("vote agreement", 4, 1),
        Kill("evaluation", 5, last),
        Kill("between", 6, last),
        Kill("applied", 6, 1),
        Kill("vote", 7, last),  # the others stand in it and have no copy of this rank: it is redone, and they compare
        Kill("forward", 9, 0),
        Kill("forward", 9, last),
        Kill("backward", 10, 0),
    ]
    return tuple(kill for kill in kills if ranks > 2 or kill not in (Kill("verify", 2, last), Kill("forward", 9, last)))


def phases(kills: tuple[Kill, ...]) -> list[tuple[Kill, ...]]:
    """What belongs together: two at once, a newcomer and the one before it."""
    found: list[tuple[Kill, ...]] = []
    for kill in kills:
        if found and (kill.of_newcomer or (found[-1][-1].point, found[-1][-1].step) == (kill.point, kill.step)):
            found[-1] += (kill,)
        else:
            found.append((kill,))
    return found


@dataclass(frozen=True)
class Script:
    path: Path
    about: str  # its docstring's first line
    ranks: int = 3
    expect: str = "bitwise"  # one of VERDICTS
    code: str = ""  # of the message, of what is refused or told
    text: str = ""  # ... and part of it, as a name; "": nothing of the kind
    own: tuple[Kill, ...] = ()
    group: str = ""
    arguments: tuple[str, ...] = ()
    limit: float = LIMIT
    needs: tuple[str, ...] = ()

    @property
    def missing(self) -> str:
        """The packages that it needs and that are not installed, in words; empty: none."""
        absent = [name for name in self.needs if importlib.util.find_spec(name) is None]
        return f"{' and '.join(absent)} not installed (make frameworks)" if absent else ""

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def kills(self) -> tuple[Kill, ...]:
        return self.own or plan(self.ranks)

    def is_said_in(self, output: str) -> bool:
        """Whether a line has the expected message."""
        return any(self.code in line and self.text in line for line in output.splitlines())

    @property
    def expectation(self) -> str:
        return " ".join(filter(None, [self.expect, self.code, self.text and f'"{self.text}"']))


def read(path: Path) -> Script:
    """Raises `ValueError` for a header that cannot be meant."""
    source = path.read_text()
    about = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
    if not about:
        raise ValueError(f"{path.name}: it has no docstring that says what it does")
    said: dict[str, str] = {}
    for line in _head(source):
        if found := _HEADER.match(line):
            if found[1] in said:
                raise ValueError(f"{path.name}: two lines begin with '# {found[1]}:'")
            said[found[1]] = found[2]
    expect, code, text = _expectation(path.name, said.get("expect", ""))
    ranks = int(said.get("ranks", "3"))
    own = _kills(path.name, said["kills"], ranks) if "kills" in said else ()
    arguments = tuple(shlex.split(said.get("arguments", "")))
    limit = float(said.get("limit", LIMIT))
    needs = tuple(said.get("needs", "").split())
    return Script(path, about, ranks, expect, code, text, own, said.get("group", "basics"), arguments, limit, needs)


def _head(source: str) -> list[str]:
    """The lines ahead of the first import."""
    lines = source.splitlines()
    for number, line in enumerate(lines):
        if line.startswith(("import ", "from ")):
            return lines[:number]
    return lines


def _expectation(name: str, said: str) -> tuple[str, str, str]:
    found = _EXPECT.fullmatch(said)
    if found is None:
        raise ValueError(f'{name}: \'# expect:\' is followed by bitwise, not silent, refused CODE "NAME" or told CODE "NAME"')
    return (found[1], "", "") if found[1] else (found[2], found[3] or "", found[4] or "")


def _kills(name: str, said: str, ranks: int) -> tuple[Kill, ...]:
    end, found = 0, list[Kill]()
    while end < len(said):
        match = _KILL.match(said, end)
        if match is None:
            raise ValueError(f"{name}: '{said[end:]}' in '# kills:' is no POINT@STEP:RANK")
        kill = Kill(match[1], int(match[2]), int(match[3]))
        if kill.point not in POINTS:
            raise ValueError(f"{name}: there is no point {kill.point!r}; there are {', '.join(POINTS)}")
        if kill.rank >= ranks:
            raise ValueError(f"{name}: {kill} is of a rank that it does not have")
        same = [other for other in found if other.rank == kill.rank]
        if kill.of_newcomer and (len(same) != 1 or same != found[-1:]):
            raise ValueError(f"{name}: {kill} must come right after the first kill of rank {kill.rank}")
        found.append(kill)
        end = match.end()
    return tuple(found)


def find(folder: Path = FOLDER) -> list[Script]:
    """All of a folder, by chapter and name. Raises `ValueError`."""
    found = [read(path) for path in sorted(folder.glob("*.py")) if not path.name.startswith("_")]
    return sorted(found, key=lambda script: (script.group, script.name))
