"""Kill a rank in the middle of training and see that nothing is lost: `make demo`, or `python examples/demo.py`.

Trains `train_gpt.py` with four ranks and a spare under `understudy run`, sends a signal to the process of one rank when
half of the steps are done, and shows what happens. Then it runs the same command again, undisturbed, and
compares: parameters, optimizer state, random number generators and losses of every rank, bit by bit.

Exit code 0 only if both runs ended well, the kill led to an incident, and the two are identical. Everything is kept
below `demo-runs/`; the tensors (some 130 MB per rank and run) only if they differ.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.panel import Panel

import final_state
from demo_view import LiveView, Moment, save_picture
from running import RunningJob

VERBS = {"KILL": "killed", "STOP": "stopped"}
LIMIT = 900.0  # seconds for one run: something is wrong after that


@dataclass
class Kill:
    """The kill, and its consequences: from the signal to the next step that every rank had committed."""

    rank: int
    step: int  # the last one reported before the signal
    pid: int
    moment: float  # unix time
    verb: str  # killed, stopped
    seconds: float = -1.0
    next_step: int = 0


def main() -> int:
    args = arguments()
    console = Console()
    folder = Path(args.folder, time.strftime("%Y%m%d-%H%M%S"))
    training = ["--steps", str(args.steps), "--parallel", args.parallel, "--device", args.device]
    training += args.script_arguments

    def start(name: str, *more: str) -> RunningJob:
        return RunningJob(folder / name, training, ranks=args.ranks, spares=args.spares, options=[*args.option, *more], final=True)

    with start("disturbed") as job:
        kill = watch(job, args, console, folder)
        if not ended_well(job, console):
            return 1
    if kill is None:
        console.print("The job ended before the signal was sent: nothing was shown.", highlight=False, soft_wrap=True)
        return 1
    report = job.last_report()

    console.print("\nThe same command again, undisturbed, as the reference:", highlight=False, soft_wrap=True)
    with start("reference", "--drill", "off") as reference:
        watch(reference, None, console, folder, steps=args.steps)
        if not ended_well(reference, console):
            return 1

    differences = compare(job, reference, kill, console)
    verdict(job, kill, report, differences, folder, console)
    plot(job, reference, kill, folder, console)
    console.print(f"Pictures and records: {folder}", highlight=False, soft_wrap=True)
    return 0 if not differences and report["incidents"] else 1


def watch(job: RunningJob, args: argparse.Namespace | None, console: Console, folder: Path, steps: int = 0) -> Kill | None:
    """Show the job until it ends. With `args`, send the signal at half time, or as soon as a spare is warm. Returns what was killed."""
    steps = args.steps if args else steps
    title = f"understudy: {job.ranks} ranks and a spare" + ("" if args else ", undisturbed")
    moment = Moment(title, steps)
    kill: Kill | None = None
    pictured, drilled = False, ""
    with LiveView(console) as view:
        while job.running():
            if time.time() - job.started > LIMIT:
                moment.story.append(f"no end after {LIMIT:.0f} s: giving up")
                view.show(moment)
                return kill
            job.metrics.refresh()
            moment.losses = job.metrics.losses[0]
            moment.status = job.status() or moment.status
            if moment.status and not drilled and (drilled := verdicts(moment.status)):
                moment.story.append(drilled)
            step = job.metrics.last_step()
            waits = step < steps * 3 // 4 and not any(spare["state"] == "warm" for spare in moment.status.get("spares", []))
            if args and kill is None and moment.status and steps // 2 <= step < steps and not waits:
                pid, when = job.kill(args.kill_rank, signal.Signals[f"SIG{args.signal}"])
                kill = Kill(args.kill_rank, step, pid, when, VERBS[args.signal])
                moment.marked = step + 1
                moment.story.append(f"SIG{args.signal} sent to rank {kill.rank} (pid {pid}) after step {step}")
            if kill is not None:
                moment.report = job.report() or moment.report
                seen(job, kill)
                closed = any(incident["seconds"] is not None for incident in moment.report.get("incidents", []))
                if not pictured and kill.seconds >= 0 and closed:
                    save_picture(moment, folder / "live.svg")
                    pictured = True
            view.show(moment)
            time.sleep(0.1)  # the pace of the picture: measurements have their own times
        job.metrics.refresh()
        if kill is not None:
            seen(job, kill)
        moment.status = {**moment.status, "state": f"ended with code {job.process.returncode}"}
        view.show(moment)
    return kill


def verdicts(status: dict[str, Any]) -> str:
    """Return the result of the first drill; empty while there is none."""
    for drill in status["drills"]:
        if drill["verdict"] == "same":
            how = f"spare {drill['worker']} computed the same bits beside it"
            return f"drill: passed for rank {drill['rank']} at step {drill['step']}: {how}"
        if drill["verdict"]:
            return f"drill: rank {drill['rank']} is {drill['verdict']}: {drill['detail']}"
    return ""


def seen(job: RunningJob, kill: Kill) -> None:
    if kill.seconds < 0 and (found := job.metrics.next_commit(kill.moment)):
        kill.next_step, at = found
        kill.seconds = at - kill.moment


def ended_well(job: RunningJob, console: Console) -> bool:
    if job.process.poll() == 0:
        return True
    console.print(
        f"The run in {job.folder} ended with code {job.process.poll()}. Its last lines:",
        highlight=False,
        soft_wrap=True,
    )
    console.print(job.output(), markup=False, highlight=False, soft_wrap=True)
    return False


def compare(job: RunningJob, reference: RunningJob, kill: Kill, console: Console) -> list[str]:
    """Return the differences between the runs, in words. Deletes the saved tensors if there are none."""
    state = final_state.compare(job.final, reference.final, job.ranks)
    differences = [*state.differences, *job.metrics.contradictions]
    lines = 0
    for rank, (losses, expected) in enumerate(zip(job.metrics.losses, reference.metrics.losses, strict=True)):
        lines += len(losses.keys() & expected.keys())
        # A rank that dies between its commit and its line leaves that line out.
        unsaid = {kill.step, kill.step + 1} - losses.keys() if rank == kill.rank else set()
        differences += [
            f"rank {rank}: loss of step {step}"
            for step in sorted((losses.keys() | expected.keys()) - unsaid)
            if losses.get(step) != expected.get(step)
        ]
    console.print(
        f"\nCompared {state.tensors} tensors ({state.bytes / 1e6:.0f} MB), the random number generators, schedules and "
        f"loss records of {job.ranks} ranks, and {lines} reported losses.",
        highlight=False,
        soft_wrap=True,
    )
    if not differences:
        for file in [*job.final.glob("*.pt"), *reference.final.glob("*.pt")]:
            file.unlink()
    return differences


def verdict(job: RunningJob, kill: Kill, report: dict[str, Any], differences: list[str], folder: Path, console: Console) -> None:
    incidents = report["incidents"]
    one_step = statistics.median(job.metrics.step_seconds(until=kill.moment))
    lines = []
    if not incidents:
        lines.append("[bold red]NO INCIDENT[/]: the signal led to none, so nothing was shown.")
    elif differences:
        lines.append(f"[bold red]NOT IDENTICAL[/]: {len(differences)} differences: {', '.join(differences[:5])} ...")
    else:
        lines.append("[bold green]BITWISE IDENTICAL[/]: parameters, optimizer state, RNG and losses of all ranks.")
    lines.append(f"Rank {kill.rank} (pid {kill.pid}) was {kill.verb} after step {kill.step}.")
    if kill.seconds >= 0:
        lines.append(
            f"From the signal to the next step committed by all ranks (step {kill.next_step}): {kill.seconds:.2f} s, "
            f"measured here. One step takes {one_step:.2f} s."
        )
    for incident in incidents:
        lines.append(
            f"As reported by understudy: {incident['seconds'] or 0:.2f} s, {incident['decision']}, "
            f"{incident['bytes_moved'] / 1e6:.1f} MB moved, {incident['digests_verified']} digests verified, "
            f"steps lost: {incident['steps_lost']}."
        )
        lines.append(f"Its grade: {incident['grade'] or 'none'}. {incident['why']}.")
        lines += [f"Note: {note}" for note in incident.get("notes", [])]
    console.print(Panel("\n".join(lines), title="verdict", width=100), highlight=False)
    result = {
        "identical": not differences,
        "differences": differences,
        "kill": vars(kill),
        "step_seconds": one_step,
        "report": report,
    }
    (folder / "result.json").write_text(json.dumps(result, indent=1) + "\n")


def plot(job: RunningJob, reference: RunningJob, kill: Kill, folder: Path, console: Console) -> None:
    """Plot `loss.png` and `loss.svg`: both loss curves, with the incident marked."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ModuleNotFoundError as error:
        console.print(f"No plot: {error}. It comes with `pip install understudy[plot]`.", highlight=False, soft_wrap=True)
        return

    figure, axes = pyplot.subplots(figsize=(8, 4), layout="constrained")
    for metrics, label, colour, width in (
        (reference.metrics, "undisturbed", "#f7c48b", 4.0),
        (job.metrics, f"rank {kill.rank} {kill.verb}", "tab:blue", 1.2),
    ):
        losses = dict(sorted(metrics.losses[0].items()))
        axes.plot(list(losses), list(losses.values()), label=label, color=colour, linewidth=width)
    axes.axvline(kill.step + 1, color="tab:red", linestyle="--", linewidth=1)
    axes.annotate(
        f"rank {kill.rank} {kill.verb},\nnext commit after {kill.seconds:.2f} s",
        (kill.step + 1, 0.8),
        xycoords=("data", "axes fraction"),
        xytext=(8, 0),
        textcoords="offset points",
        color="tab:red",
    )
    axes.set_xlabel("step")
    axes.set_ylabel("training loss, nats per byte")
    axes.legend()
    for name in ("loss.png", "loss.svg"):
        figure.savefig(folder / name, dpi=150)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Train a GPT, kill a rank, compare with the undisturbed run.",
        epilog="Further arguments go to train_gpt.py, e.g. --accumulate 2.",
    )
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--kill-rank", type=int, default=2)
    parser.add_argument("--signal", choices=("KILL", "STOP"), default="KILL", help="STOP: the rank hangs")
    parser.add_argument("--parallel", choices=("ddp", "hsdp", "tp"), default="ddp")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--spares", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--option", action="append", default=[], help="further option of `understudy run`, repeatable")
    parser.add_argument("--folder", default="demo-runs", help="where runs are kept")
    args, script_arguments = parser.parse_known_args()
    args.script_arguments = script_arguments
    if args.signal == "STOP" and "--hang-limit" not in args.option:
        args.option += ["--hang-limit", "5"]  # by default a rank counts as hung after a minute
    if args.steps < 10:
        parser.error("--steps must be at least 10: the signal comes at half time")
    if not 0 <= args.kill_rank < args.ranks:
        parser.error(f"--kill-rank must be one of the {args.ranks} ranks")
    return args


if __name__ == "__main__":
    sys.exit(main())
