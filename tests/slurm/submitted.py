"""Jobs of people on the test cluster: their scripts, their states, and the records of their ranks."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.faults.harness import JOB
from tests.integration.processes import wait_until
from tests.integration.training import JOBS, LONG, Outcome
from tests.matrix.cells import RANKS, Cell
from tests.matrix.results import Result
from tests.matrix.run import Finished, compare, last_step, log_of, undisturbed
from tests.message_texts import has
from tests.slurm.cluster import NODES, Cluster
from understudy.messages import asking

PACE = 0.05  # seconds of a step of a job that goes on, so that there are not too many of them
SRUN = "srun --no-kill --kill-on-bad-exit=0 --wait=0"
OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY")


class Submitted:
    """A job that trains with `script` on some nodes of the cluster, the last of which have spares."""

    def __init__(
        self,
        cluster: Cluster,
        *flags: str,
        nodes: int = 5,
        spare_nodes: int = 1,
        user: str = "alice",
        name: str = "job",
        script: str = "",
        options: tuple[str, ...] = (),
        gpus: int = 4,
        before: str = "",
        after: str = "",
        **environment: str,
    ) -> None:
        """Submit `script` and its arguments; by default `spread.py`. `options`: further ones of sbatch. `gpus`: on each node, by `--gres`;
        0: none are requested so. `before`, `after`: commands of the batch script before and after training.
        """
        self.cluster, self.user = cluster, user
        self.folder = cluster.home(user) / name
        cluster.run(user, "mkdir", str(self.folder), str(self.folder / "out"))
        exports = "".join(f"export {key}='{value}'\n" for key, value in environment.items())
        trains = script or f"{JOBS / 'spread.py'} {self.folder / 'out'}"
        words = f"understudy run --spare-nodes {spare_nodes} {' '.join(flags)} {trains}"
        directives = ("--no-kill", f"--nodes={nodes}", *([f"--gres=gpu:{gpus}"] if gpus else []), "--output=output.txt", *options)
        header = "".join(f"#SBATCH {option}\n" for option in directives)
        file = self.folder / "job.sh"
        file.write_text(f"#!/bin/bash\n{header}{exports}{before}\n{SRUN} {words}\ncode=$?\n{after}\nexit $code\n")
        self.number = cluster.run(user, "sbatch", "--parsable", str(file), folder=self.folder).strip()

    @property
    def output(self) -> str:
        path = self.folder / "output.txt"
        return path.read_text(errors="replace") if path.exists() else ""

    def shown(self) -> dict[str, str]:
        """The output of `scontrol show job` for this one, and not for other tasks of its array."""
        shown = self.cluster.run("root", "scontrol", "show", "job", "--oneliner", self.number).splitlines()
        (text,) = [line for line in shown if line.startswith(f"JobId={self.number} ")]
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    @property
    def state(self) -> str:
        return self.shown()["JobState"]

    def comment(self) -> str:
        return self.cluster.run("root", "squeue", "--noheader", "--states=all", f"--jobs={self.number}", "--format=%k").strip()

    def wait_until(self, condition: Any, what: str) -> None:
        def there() -> bool:
            assert self.state not in OVER, f"{self.state} before {what}\n{self.output}"
            return bool(condition())

        wait_until(there, what, LONG)

    def waits_without_slurm(self, condition: Any, what: str) -> None:
        wait_until(condition, what, LONG)

    def wait_for(self, marker: str) -> None:
        self.wait_until((self.folder / "out" / f"marker {marker}").exists, marker)

    def wait_for_words(self, words: str) -> None:
        self.wait_until(lambda: words in self.output, words)

    def wait_for_step(self, step: int, generation: int, ranks: int = 4) -> None:
        for rank in range(ranks):
            self.wait_for(f"step {step} on {rank} in generation {generation}")

    def let(self, name: str = "let go") -> None:
        (self.folder / "out" / name).touch()

    def run_directory(self, node: str, restarts: int = 0) -> Path:
        again = f"-r{restarts}" if restarts else ""
        return self.folder / "understudy-runs" / f"slurm-{self.number}.0{again}-{node}"

    def ask(self, what: str, node: str = "n1") -> dict[str, Any]:
        """On that node, which must be up: `understudy status` or `report`. Waits while the orchestrators choose which of them leads."""
        words = [sys.executable, "-m", "understudy.cli", what, "--json", "--run-dir", str(self.run_directory(node))]
        answers: list[str] = []

        def answered() -> bool:
            done = self.cluster.attempt(self.user, *words)
            if done.returncode and has(done.stderr, asking.NONE_LEADS):
                return False
            assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
            answers.append(done.stdout)
            return True

        wait_until(answered, f"an answer to {what}", LONG)  # of ours, also while Slurm is away
        found: dict[str, Any] = json.loads(answers[-1])
        return found

    def ends(self, node: str = "n1", state: str = "COMPLETED") -> Outcome:
        """Waits for its end. `node`: one that ran an orchestrator to the end."""
        wait_until(lambda: self.state in OVER, "the end of the job", LONG)
        found = self.shown()
        assert found["JobState"] == state, f"{found['JobState']}\n{self.output}"
        code = int(found["ExitCode"].split(":")[0])
        run = self.folder / "out" / "run"
        if not run.exists():
            run.symlink_to(self.run_directory(node))
        return Outcome(code, self.output, self.folder / "out")

    def goes_on(self, node: str = "n1", steps: int = 3) -> None:
        """For some steps from now on, as every rank has committed them. `node`: on which to ask."""
        now = int(self.ask("status", node)["step"])
        self.wait_until(lambda: int(self.ask("status", node)["step"]) > now + steps, f"step {now + steps}")

    def node_of(self, rank: int, node: str = "n1") -> str:
        return str(self.ask("status", node)["ranks"][rank]["node"])

    def nothing_is_left(self) -> None:
        """No step, no process, no file of the secret, on any node that is up; and no job of ours of any kind in Slurm's queue."""
        wait_until(lambda: not self.cluster.run("root", "squeue", "--noheader", f"--user={self.user}").strip(), "an empty queue", LONG)
        for name in NODES:
            host = self.cluster.nodes[name]
            if host.is_on:
                wait_until(lambda host=host: not host.processes(self.user), f"no process on {name}", LONG)  # type: ignore[misc]
                assert not host.files_of_ours(), host.files_of_ours()


class Steady(Submitted):
    """A job that trains until a stop is requested, in one of the ways of the matrix, and logs the state of its ranks after every step."""

    def __init__(self, cluster: Cluster, *flags: str, mode: str = "ddp", user: str = "alice", name: str = "job", **options: Any) -> None:
        self.mode = mode
        out = cluster.home(user) / name / "out"
        words = f"--out {out} --mode {mode} --states --steps {1 << 40} --pace {PACE} --stop {out / 'stop'}"
        super().__init__(cluster, *flags, user=user, name=name, script=f"{JOB} {words}", **options)

    def trains(self, node: str = "n1") -> None:
        """Every rank has committed a step."""
        self.wait_until(lambda: (self.run_directory(node) / "orchestrator.json").exists(), "an orchestrator")
        self.wait_until(lambda: int(self.ask("status", node)["step"]) > 0, "the first step")

    def ends_as_undisturbed(self, node: str = "n1", state: str = "COMPLETED") -> list[dict[str, Any]]:
        """Gives its incidents."""
        self.let("stop")
        outcome = self.ends(node, state)
        logs = {rank: log_of(self.folder / "out" / f"log-{rank}.txt") for rank in range(RANKS)}
        result = Result(Cell(self.mode, "slurm", "slurm"))
        result.steps = (0, last_step(logs))
        reference = undisturbed(self.mode, result.steps[1])
        compare(Finished([result], logs, result.steps[1]), reference)
        assert not result.wrong, result.wrong
        return outcome.incidents
