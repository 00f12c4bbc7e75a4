"""The process on a node that Slurm has given to a job on demand, before it starts an agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.message_texts import has

from understudy.agent.config import AgentConfig
from understudy.cli import claimed
from understudy.common.names import CLAIM_VARIABLE, NEED_VARIABLE, OWNER_VARIABLE, TOKEN_VARIABLE
from understudy.messages import slurm
from understudy.schedulers.slurm.resources import Resources


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the agent's settings; filled when the supervisor would have run."""
    found: dict[str, Any] = {}

    class Supervisor:
        def __init__(self, run: object, config: AgentConfig, *rest: object, **more: object) -> None:
            found["node"] = config.node

        def run(self) -> int:
            return 7

    settings = AgentConfig("job", tmp_path, "", 4, "", ("train.py",), 1, claim=0, orchestrator="http://127.0.0.1:1")
    for name, value in {
        CLAIM_VARIABLE: json.dumps(settings.as_dict()),
        TOKEN_VARIABLE: "secret",
        OWNER_VARIABLE: "7",
        "SLURMD_NODENAME": "n5",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(claimed, "Supervisor", Supervisor)
    monkeypatch.setattr(claimed, "owner_is_over", lambda job: False)
    monkeypatch.setattr(claimed, "_watch", lambda owner: None)
    monkeypatch.setattr(claimed, "refuse", lambda why: found.update(refused=why))
    return found


@pytest.mark.parametrize(("missing", "code"), [("", 7), ("1 of 4 gpu", 3)])
def test_the_given_resources_are_compared_with_those_the_orchestrator_needs(
    missing: str, code: int, started: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    need = Resources(8, 4000, {"gpu": 4})
    monkeypatch.setenv(NEED_VARIABLE, need.as_json())
    compared = {need.as_json(): slurm.LESS_THAN_THE_JOB(node="n5", missing=missing) if missing else ""}
    monkeypatch.setattr(claimed, "unlike", lambda wanted: compared[wanted.as_json()])
    assert claimed.main() == code
    assert started.get("node") == (None if missing else "n5")
    assert has(started.get("refused"), slurm.LESS_THAN_THE_JOB, missing=missing) == bool(missing)


def test_an_orchestrator_that_was_started_before_nodes_were_compared_gets_its_node(
    started: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package was updated while its job runs: the orchestrator's request does not include the needs."""
    monkeypatch.delenv(NEED_VARIABLE, raising=False)
    assert claimed.main() == 7 and started == {"node": "n5"}
