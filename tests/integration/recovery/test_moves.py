"""A planned migration, its status and report, and the same script with and without Understudy."""

from __future__ import annotations

import json

from tests.integration.processes import is_alive, wait_until
from tests.integration.training import LONG, Training, survived, training, understudy

__all__ = ["training"]


def test_a_rank_is_moved_at_a_step_boundary(training: Training) -> None:
    reference = training.undisturbed("moving.py", ranks=3, files=("go on", "end"))
    job = training.begin("moving.py", ranks=3)
    run = str(job.folder / "run")

    def status() -> dict[str, object]:
        return job.status()

    def there(name: str) -> bool:
        assert job.process.poll() is None, job.output
        return (job.folder / name).exists()

    wait_until(lambda: all(there(f"marker waiting on {rank}") for rank in range(3)), "all ranks at step 10", LONG)
    wait_until(lambda: [rank["step"] for rank in status()["ranks"]] == [10, 10, 10], "status at step 10", LONG)  # type: ignore[attr-defined]
    before = status()
    assert before.keys() >= {"job", "generation", "step", "ranks", "spares"}
    assert (before["generation"], before["step"]) == (0, 10)
    ranks = before["ranks"]
    assert isinstance(ranks, list)
    assert [set(rank) for rank in ranks] == [{"rank", "worker", "pid", "node", "device", "state", "step", "proven"}] * 3
    assert [rank["worker"] for rank in ranks] == ["w0", "w1", "w2"]
    spares = before["spares"]
    assert isinstance(spares, list)
    assert [set(spare) for spare in spares] == [{"worker", "pid", "node", "state", "rank"}]
    wait_until(lambda: "warm" in understudy("status", "--run-dir", run).stdout, "a warm spare", LONG)

    asked = understudy("migrate", "--rank", "2", "--run-dir", run)
    assert asked.returncode == 0, asked.stderr
    wait_until(lambda: there("marker set-up of 2 again"), "the newcomer's set-up", LONG)
    assert [rank["step"] for rank in status()["ranks"]] == [10, 10, 10], "no rank has waited for that set-up"  # type: ignore[attr-defined]
    (job.folder / "go on").touch()
    wait_until(lambda: there("marker waiting at the end on 2") and not is_alive(ranks[2]["pid"]), "the old worker's end", LONG)
    (moved,) = json.loads(understudy("report", "--json", "--run-dir", run).stdout)["incidents"]
    after = status()
    assert after["generation"] == 1
    assert after["ranks"][2]["worker"] == "w3"  # type: ignore[index]
    assert [rank["pid"] for rank in after["ranks"][:2]] == [rank["pid"] for rank in ranks[:2]]  # type: ignore[index]
    (job.folder / "end").touch()

    (incident,) = survived(job.ends(), reference)
    assert incident == moved
    assert (incident["planned"], incident["cause"], incident["decision"]) == (True, "migrated", "boundary")
    assert (incident["rank"], incident["old_worker"], incident["new_worker"]) == (2, "w2", "w3")
    assert incident["phases"].keys() >= {"detect", "abort", "assign", "attach", "transfer", "verify", "redo"}
    assert incident["bytes_moved"] > 0
    assert incident["digests_verified"] > 0


def test_two_ranks_compute_the_same_with_and_without_understudy(training: Training) -> None:
    reference = training.undisturbed("mixed.py")
    outcome = training.run("mixed.py", spares=0)
    assert survived(outcome, reference, losses=0) == []
    assert outcome.ask("status")["state"] == "finished"


def test_one_rank_computes_the_same_with_and_without_understudy(training: Training) -> None:
    reference = training.undisturbed("mixed.py", ranks=None)
    assert survived(training.run("mixed.py", ranks=1, spares=0), reference, losses=0) == []
