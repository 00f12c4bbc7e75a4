"""Watch a training job under `understudy run`, and disturb it from outside, for the demo and the benchmarks.

All data is available to any user: the metrics files that `train_gpt.py` writes, the orchestrator's HTTP
API (address and token are in the run directory), and `understudy report` once the job is over. A kill is a real signal
to the process of the rank.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

SCRIPT = Path(__file__).with_name("train_gpt.py")


PHASES = ("detect", "abort", "assign", "setup", "attach", "transfer", "verify", "redo")  # in the report's order


class Metrics:
    """Read the lines {step, loss, time} of every rank as they are written. A line that is written twice must be the same."""

    def __init__(self, folder: Path, ranks: int) -> None:
        self.paths = [folder / f"metrics-{rank}.jsonl" for rank in range(ranks)]
        self.losses: list[dict[int, float]] = [{} for _ in self.paths]
        self.times: list[dict[int, float]] = [{} for _ in self.paths]  # of the first line of a step
        self.contradictions: list[str] = []
        self._read = [0 for _ in self.paths]  # bytes

    def refresh(self) -> None:
        for rank, path in enumerate(self.paths):
            if not path.exists():
                continue
            with path.open("rb") as file:
                file.seek(self._read[rank])
                text = file.read()
            text = text[: text.rfind(b"\n") + 1]  # whole lines only
            self._read[rank] += len(text)
            for line in text.splitlines():
                fields = json.loads(line)
                step, loss = int(fields["step"]), float(fields["loss"])
                if self.losses[rank].setdefault(step, loss) != loss:
                    self.contradictions.append(f"rank {rank} reported two losses for step {step}")
                self.times[rank].setdefault(step, float(fields["time"]))

    def last_step(self) -> int:
        """Return the last step that any rank has reported, 0 before the first."""
        return max((max(times, default=0) for times in self.times), default=0)

    def complete(self) -> dict[int, float]:
        """Return the steps that every rank has reported, with the time at which the last rank did."""
        common = set(self.times[0]).intersection(*self.times[1:])
        return {step: max(times[step] for times in self.times) for step in sorted(common)}

    def next_commit(self, moment: float) -> tuple[int, float] | None:
        """Return the first step beyond any reported at `moment`: its number, and when all ranks had reported it."""
        before = max((step for times in self.times for step, at in times.items() if at <= moment), default=0)
        return next(((step, at) for step, at in self.complete().items() if step > before and at > moment), None)

    def step_seconds(self, skip: int = 3, until: float = float("inf")) -> list[float]:
        """Return the time of each step that all ranks reported before `until`, without the first `skip`."""
        ends = [at for at in self.complete().values() if at < until]
        return [end - start for start, end in zip(ends[skip:], ends[skip + 1 :], strict=False)]


class RunningJob:
    """`understudy run ... train_gpt.py ...`, started at once. Use it as a context manager: it leaves nothing running.

    folder: gets `run/` (the run directory), `metrics-*.jsonl`, `final/` (with `final=True`) and `output.log`.
    options: further options of `understudy run`; arguments: those of the script.
    """

    def __init__(
        self,
        folder: Path,
        arguments: Sequence[str],
        *,
        ranks: int = 4,
        spares: int = 1,
        options: Sequence[str] = (),
        environment: dict[str, str] | None = None,
        final: bool = False,
    ) -> None:
        folder.mkdir(parents=True)
        self.folder, self.ranks = folder, ranks
        self.run_dir, self.final = folder / "run", folder / "final"
        self.metrics = Metrics(folder, ranks)
        self.started = time.time()
        self._client: httpx.Client | None = None
        command = [sys.executable, "-m", "understudy.cli", "run", "--run-dir", str(self.run_dir)]
        command += ["--nproc-per-node", str(ranks), "--spares", str(spares), *options, str(SCRIPT), *arguments]
        command += ["--metrics", str(folder / "metrics-{rank}.jsonl")]
        command += ["--final", str(self.final)] if final else []
        with (folder / "output.log").open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches this program, which then ends the job
                env={**os.environ, **(environment or {})},
            )

    def __enter__(self) -> RunningJob:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self._client:
            self._client.close()

    def running(self) -> bool:
        return self.process.poll() is None

    def status(self) -> dict[str, Any]:
        """Return the orchestrator's status; empty while none answers."""
        return self._get("status")

    def report(self) -> dict[str, Any]:
        """Return every incident so far; empty while no orchestrator answers."""
        return self._get("report")

    def last_report(self) -> dict[str, Any]:
        """Run `understudy report --json`: works after the job, too."""
        command = [sys.executable, "-m", "understudy.cli", "report", "--run-dir", str(self.run_dir), "--json"]
        result: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        return result

    def kill(self, rank: int, which: signal.Signals = signal.SIGKILL) -> tuple[int, float]:
        """Send the signal to the process of `rank`. Return its pid and the time before the signal."""
        holder = next(holder for holder in self.status()["ranks"] if holder["rank"] == rank)
        if holder["pid"] is None:
            raise RuntimeError(f"the process id of rank {rank} is not known yet, as worker {holder['worker']} is still starting")
        pid = int(holder["pid"])
        moment = time.time()
        os.kill(pid, which)
        return pid, moment

    def output(self, lines: int = 20) -> str:
        return "\n".join((self.folder / "output.log").read_text(errors="replace").splitlines()[-lines:])

    def _get(self, what: str) -> dict[str, Any]:
        with contextlib.suppress(httpx.HTTPError, OSError, ValueError, KeyError):
            if self._client is None:
                url = json.loads((self.run_dir / "orchestrator.json").read_text())["url"]
                token = (self.run_dir / "token").read_text().strip()
                self._client = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=5, trust_env=False)
            answer = self._client.get(f"/v1/jobs/-/{what}")
            answer.raise_for_status()
            result: dict[str, Any] = answer.json()
            return result
        return {}
