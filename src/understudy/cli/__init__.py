"""The command line. None of it imports torch."""

from __future__ import annotations

import typer

from understudy.cli.access_command import certs, token
from understudy.cli.chaos_command import chaos
from understudy.cli.check_node_command import check_node
from understudy.cli.detectors_command import detectors
from understudy.cli.doctor_command import doctor
from understudy.cli.drain_command import drain, undrain
from understudy.cli.drill_command import drill
from understudy.cli.events_command import events
from understudy.cli.exit_codes import epilog
from understudy.cli.explain_command import explain
from understudy.cli.job_commands import migrate, report, resolve, status, stop, taint
from understudy.cli.journal_command import journal
from understudy.cli.kubernetes_command import kubernetes
from understudy.cli.network_command import network
from understudy.cli.policy_command import policy
from understudy.cli.run_command import run
from understudy.cli.serve_command import agent, orchestrator
from understudy.cli.slurm_command import slurm
from understudy.cli.submitted_jobs import cancel, jobs, logs, nodes

EPILOG = (
    "Typical use: [bold]understudy run --nproc-per-node 4 --spares 1 train.py --lr 3e-4[/bold], and in a second "
    "terminal, in the same folder, [bold]understudy status[/bold]; afterwards [bold]understudy report[/bold]."
)

app = typer.Typer(
    name="understudy",
    help="Keeps distributed PyTorch training running through the loss of a rank: a warm spare takes the rank over within the step.",
    epilog=EPILOG,
    rich_markup_mode="rich",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # --nproc_per_node and --nproc-per-node are one option, as in torchrun.
    context_settings={
        "token_normalize_func": lambda name: name.replace("_", "-"),
        "help_option_names": ["-h", "--help"],
    },
)
app.command("run", context_settings={"allow_interspersed_args": False}, epilog=epilog("run", "run --check"))(run)
app.command("status")(status)
app.command("report")(report)
app.command("events")(events)
app.command("migrate")(migrate)
app.command("drill", epilog=epilog("drill --wait"))(drill)
app.command("resolve")(resolve)
app.command("believe", hidden=True)(resolve)  # its name in version 0.1
app.command("taint")(taint)
app.command("drain", epilog=epilog("drain"))(drain)
app.command("undrain", epilog=epilog("undrain"))(undrain)
app.command("stop")(stop)
app.command("chaos", epilog=epilog("chaos"))(chaos)
app.command("doctor", epilog=epilog("doctor"))(doctor)
app.command("explain")(explain)
app.command("detectors", epilog=epilog("detectors"))(detectors)
app.command("check-node", epilog=epilog("check-node"))(check_node)
app.add_typer(policy)
app.add_typer(journal)
app.add_typer(slurm)
app.add_typer(kubernetes)
app.add_typer(network)
SERVICE = "A service for many jobs on many nodes"
app.command(rich_help_panel=SERVICE, epilog=epilog("orchestrator"))(orchestrator)
app.command(rich_help_panel=SERVICE, epilog=epilog("agent"))(agent)
app.command(rich_help_panel=SERVICE, epilog=epilog("logs --follow"))(logs)
for command in (jobs, nodes, cancel, token):
    app.command(rich_help_panel=SERVICE)(command)
app.add_typer(certs, name="certs", rich_help_panel=SERVICE)


def main() -> None:
    app()
