"""Drain a node under a running job, as before it is patched, and see that nothing is lost: `make drain`, or `python examples/drain.py`.

An orchestrator and three node agents run on this machine. `train_gpt.py` trains with two ranks on each of two nodes, and two spares on the
third. When a third of the steps are done one of the two nodes is drained: its ranks leave it one after the other, and it is used again.
Then the same training runs undisturbed under `understudy run`, and all is compared: parameters, optimizer state, random number generators
and losses of every rank, bit by bit.

Exit code 0 only if the node was empty, both runs ended well, and the two are identical. Everything is kept below `demo-runs/`.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.panel import Panel

import final_state
from running import SCRIPT, Metrics, RunningJob
from service import LocalService, until

JOB, RANKS = "training", 4


def main() -> int:
    args = arguments()
    console = Console(highlight=False, soft_wrap=True)
    folder = Path(args.folder, time.strftime("%Y%m%d-%H%M%S")).absolute()
    drained = folder / "drained"
    drained.mkdir(parents=True)
    metrics = Metrics(drained, RANKS)
    training = [str(SCRIPT), "--steps", str(args.steps), "--parallel", args.parallel]
    with LocalService(drained, "abc", slots=2) as service:
        words = ["--nnodes", "2", "--nproc-per-node", "2", "--spares", "2", *training]
        service.submit(JOB, *words, "--metrics", str(drained / "metrics-{rank}.jsonl"), "--final", str(drained / "final"))

        def far() -> bool:
            metrics.refresh()
            return bool(metrics.last_step() >= args.steps // 3)

        until(far, "the steps before the drain")
        node = service.get(f"jobs/{JOB}/status")["ranks"][2]["node"]
        console.print(f"step {metrics.last_step()}: understudy drain {node} --reason 'a new kernel' --wait\n")
        began = time.time()
        code = service.run("drain", node, "--reason", "a new kernel", "--wait")
        took = time.time() - began
        service.run("status", "--job", JOB)
        service.run("undrain", node)
        left = [rank["node"] for rank in service.get(f"jobs/{JOB}/status")["ranks"]]
        until(lambda: service.get(f"jobs/{JOB}/status")["exit_code"] is not None, "the end of the training")
        status, report = service.get(f"jobs/{JOB}/status"), service.get(f"jobs/{JOB}/report")
    if code or node in left or status["exit_code"]:
        console.print(f"understudy drain ended with code {code}, ranks are on {', '.join(left)}, the training: {status['message']}")
        return 1

    console.print("\nThe same training, undisturbed, as the reference:")
    with RunningJob(folder / "reference", training[1:], ranks=RANKS, spares=0, options=["--drill", "off"], final=True) as reference:
        if reference.process.wait():
            console.print(reference.output(), markup=False)
            return 1
    for one in (metrics, reference.metrics):
        one.refresh()
    state = final_state.compare(drained / "final", reference.final, RANKS)
    differences = [*state.differences, *metrics.contradictions]
    differences += [f"losses of rank {rank}" for rank in range(RANKS) if metrics.losses[rank] != reference.metrics.losses[rank]]
    pauses = [incident["seconds"] for incident in report["incidents"]]
    lines = [
        f"[bold red]NOT IDENTICAL[/]: {', '.join(differences[:5])}"
        if differences
        else "[bold green]BITWISE IDENTICAL[/]: parameters, optimizer state, RNG and losses of all ranks.",
        f"Node {node} was empty {took:.1f} s after it was asked for; training went on meanwhile.",
        f"Training paused {len(pauses)} times, for {', '.join(f'{seconds:.2f}' for seconds in pauses)} s, each with a step in it.",
        f"Compared {state.tensors} tensors ({state.bytes / 1e6:.0f} MB), and {sum(map(len, metrics.losses))} reported losses.",
    ]
    console.print(Panel("\n".join(lines), title="verdict", width=100))
    return 1 if differences else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Drain a node under a running job, and compare with the undisturbed run.")
    parser.add_argument("--steps", type=int, default=60, help="steps to train")
    parser.add_argument("--parallel", default="ddp", choices=["ddp", "hsdp"], help="how the four ranks share the work")
    parser.add_argument("--folder", default="demo-runs", help="where everything is kept")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
