"""Composing, drawing, judging and shrinking, without jobs."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import nn, optim, zeros
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from tests.conformance.fuzz.composing import HELPERS, LAYOUTS, LOOPS, MODELS, NAMES, SITES, Drawn, Hidden, combinations, composed, fragment
from tests.conformance.fuzz.drawing import USUAL_COUNT, drawn, write
from tests.conformance.fuzz.places import IMPORTS, PLACES
from tests.conformance.fuzz.shrinking import ATTEMPTS, shrunk
from tests.conformance.reported import culprits, judged
from tests.conformance.runs import ROOT, Ran, Trace
from tests.conformance.scripts import Kill, Script, read

pytestmark = pytest.mark.gate
KILLS = (Kill("forward", 2, 1),)
STEPS = 6


@pytest.mark.parametrize("place", PLACES.values(), ids=lambda place: place.name)
def test_each_way_changes_the_number_that_is_read(place: Any) -> None:
    for way, change in place.ways.items():
        names: dict[str, Any] = {"n": 0}
        exec(f"import {IMPORTS}\nimport numpy as np\nimport torch\nfrom torch import nn\n{HELPERS}", names)
        data = TensorDataset(zeros(8, 4))
        model = names["Model"](NAMES[:1])
        names |= {"data": data, "loader": DataLoader(data, sampler=DistributedSampler(data, 2, 0)), "model": model, "net": model.net}
        names["optimizer"] = optim.SGD(model.parameters(), lr=0.1)
        exec(fragment("amber", place.setup), names)
        values = []
        for names["n"] in range(STEPS):
            values.append(float(eval(fragment("amber", place.read), names)))
            names["seen"] = 0.5 + names["n"] ** 2
            exec(fragment("amber", change), names)
        assert len(set(values)) > 1, (place.name, way, values)
    for name in ("amber", "AMBER"):
        os.environ.pop(name, None)
        for owner in (nn.functional, nn.Linear, sys.modules["math"], sys.modules["builtins"]):
            if name in vars(owner):
                delattr(owner, name)


def test_a_change_that_assigns_to_the_name_of_its_state_is_known_to_do_so() -> None:
    for place in PLACES.values():
        trees = [ast.walk(ast.parse(fragment("amber", change))) for change in place.ways.values()]
        stored = {node.id for tree in trees for node in tree if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        assert stored == ({"amber"} if place.rebinds else set()), place.name


def test_every_place_way_and_site_makes_a_script() -> None:
    for number, hidden in enumerate(combinations()):
        for site in SITES:
            script = Drawn((replace(hidden, site=site),), KILLS, LAYOUTS[number % 2], LOOPS[number // 2 % 2], MODELS[number // 4 % 2])
            compile(composed(script), "drawn.py", "exec")


def test_the_header_is_that_of_the_suite(tmp_path: Path) -> None:
    kills = (Kill("forward", 0, 1), Kill("section vote", 4, 0), Kill("transfer", 4, 0))
    script = read(write(composed(Drawn((Hidden("name", "counts"),), kills)), tmp_path / "drawn.py"))
    assert (script.ranks, script.expect, script.own) == (2, "not silent", kills)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_plain_run_changes_the_parameter_of_each_state(layout: str, tmp_path: Path) -> None:
    places = ("name", "closure cell", "list", "attribute of the optimizer", "frozen dataclass replaced", "array")
    hidden = tuple(Hidden(place, next(iter(PLACES[place].ways)), site) for place, site in zip(places, SITES, strict=True))
    path = write(composed(Drawn(hidden, KILLS, layout)), tmp_path / "drawn.py")
    environment = {**os.environ, "TRACE_OUT": str(tmp_path), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, path], env=environment, cwd=tmp_path, check=True, capture_output=True)
    lines = [json.loads(line) for line in (tmp_path / "lines-0.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["key"].startswith("step ")]
    assert len(steps) == 8
    for name in NAMES[: len(hidden)]:
        values = [float.fromhex(line[name]) for line in steps]
        moves = [after - before for before, after in zip([0.0, *values], values, strict=False)]
        fed = [move - 0.9 * before for before, move in zip([0.0, *moves], moves, strict=False)]  # without the momentum
        assert max(fed) - min(fed) > 1e-4, (name, fed)


def test_equal_seeds_draw_equal_scripts() -> None:
    assert drawn(6, 3) == drawn(9, 3)[:6] != drawn(6, 4)


def test_the_usual_number_of_scripts_has_every_place_with_every_way() -> None:
    dealt = {(hidden.place, hidden.way) for script in drawn(USUAL_COUNT, 1) for hidden in script.hidden}
    assert dealt == {(hidden.place, hidden.way) for hidden in combinations()}


# -- the verdict ---------------------------------------------------------------------------------------------------------------


def _trace(**values: float) -> Trace:
    lines = tuple({"key": f"step {number}", **values} for number in range(2))
    return Trace({0: lines, 1: lines}, {0: {"model": {f"parameter probes.{name}": value for name, value in values.items()}}})


_WANTED = Ran(_trace(amber=1.0, birch=2.0))
_SCRIPT = Script(Path("drawn.py"), "", ranks=2, expect="not silent", own=KILLS)


def _ran(output: str = "", code: int = 0, **values: float) -> Ran:
    incident = {"step": 0, "grade": "unproven", "why": "", "number": 1, "ranks": [], "notes": []}
    return Ran(_trace(**{"amber": 1.0, "birch": 2.0, **values}), code, output, kills=KILLS, incidents=[incident])


@pytest.mark.parametrize(
    ("ran", "verdict"),
    [
        (_ran(), "bitwise"),
        (_ran(amber=3.0), "silent"),
        (_ran("rank 0: US1423: amber.level changes while the script trains", amber=3.0), "told"),
        (_ran("rank 0: US1423: net.AMBER changes while the script trains", amber=3.0), "told"),
        (_ran("rank 0: US1423: amberish changes while the script trains", amber=3.0), "silent"),
        (_ran("rank 0: US4712: coverage: adopted: amber", amber=3.0), "silent"),  # it says that it is carried over
        (_ran("rank 0: US1423: amber changes while the script trains", amber=3.0, birch=4.0), "silent"),
        (_ran("US4302: drill 1: the job would not survive", amber=3.0), "unclear"),
        (_ran("understudy.worker.errors.UsageError: US1224: amber is sparse", code=1), "refused"),
        (_ran("ValueError: US1224", code=1), "crashed"),
    ],
)
def test_the_verdict_needs_the_name_of_each_wrong_state(ran: Ran, verdict: str) -> None:
    assert judged(_SCRIPT, _WANTED, ran).verdict == verdict


def test_a_script_with_one_state_is_told_by_a_drill_that_fails() -> None:
    wanted, ran = Ran(_trace(amber=1.0)), replace(_ran("US4302: drill 1: the job would not survive"), trace=_trace(amber=3.0))
    assert judged(_SCRIPT, wanted, ran).verdict == "told"


def test_a_wrong_state_with_a_good_grade_is_overrated_even_if_it_is_named() -> None:
    ran = _ran("rank 0: US1423: amber changes", amber=3.0)
    incident = {**ran.incidents[0], "grade": "drilled", "step": -1}
    found = judged(_SCRIPT, _WANTED, replace(ran, incidents=[incident]))
    assert (found.verdict, culprits(found)) == ("overrated", ("amber",))


def test_the_wrong_states_are_known_by_name() -> None:
    assert culprits(judged(_SCRIPT, _WANTED, _ran(amber=3.0, birch=4.0))) == ("amber", "birch")


# -- shrinking -----------------------------------------------------------------------------------------------------------------


def test_a_script_that_fails_becomes_smaller() -> None:
    hidden = tuple(Hidden(place, "counts") for place in ("name", "slot", "namespace"))
    kills = (Kill("forward", 2, 1), Kill("between", 4, 0))
    tried: list[Drawn] = []

    def fails(script: Drawn) -> bool:
        tried.append(script)
        return hidden[1] in script.hidden and kills[1] in script.kills

    found = shrunk(Drawn(hidden, kills, "main", "batches"), ("birch", "cedar"), fails)
    assert (found.hidden, found.kills) == (hidden[1:2], kills[1:])
    assert len(tried) <= ATTEMPTS
