"""`understudy slurm`: print batch scripts for `understudy run`."""

from __future__ import annotations

from typing import Annotated

import typer

from understudy.common.console import say
from understudy.schedulers.slurm.script import Wish
from understudy.schedulers.slurm.script import script as write

slurm = typer.Typer(name="slurm", help="Print a batch script for a Slurm cluster.", no_args_is_help=True, rich_markup_mode="rich")


@slurm.command(context_settings={"allow_interspersed_args": False})
def script(
    program: Annotated[list[str], typer.Argument(metavar="SCRIPT [ARGS]", help="The training script, then its own arguments.")],
    nodes: Annotated[int, typer.Option("--nodes", "-N", min=1, help="Nodes with ranks.")] = 1,
    spare_nodes: Annotated[int, typer.Option("--spare-nodes", min=0, help="Additional nodes, with spares only.")] = 1,
    nproc_per_node: Annotated[int, typer.Option("--nproc-per-node", min=1, help="Ranks on each node.")] = 1,
    gpus_per_node: Annotated[int, typer.Option("--gpus-per-node", min=0, help="GPUs requested on each node.")] = 0,
    cpus_per_node: Annotated[int, typer.Option("--cpus-per-node", min=0, help="Processors of each node. Default: whole nodes.")] = 0,
    name: Annotated[str, typer.Option("--job-name", "-J", help="Name of the job.")] = "",
    time: Annotated[str, typer.Option("--time", "-t", help="Time limit in Slurm's format: 1-12:00:00.")] = "",
    partition: Annotated[str, typer.Option("--partition", "-p", help="Partition.")] = "",
    account: Annotated[str, typer.Option("--account", "-A", help="Account.")] = "",
    qos: Annotated[str, typer.Option("--qos", "-q", help="Quality of service.")] = "",
    notice: Annotated[
        int,
        typer.Option("--notice", min=0, help="Seconds before the time limit at which the training script receives SIGUSR1."),
    ] = 0,
    requeue: Annotated[bool, typer.Option("--requeue", help="Restart a job from its beginning if it is lost as a whole.")] = False,
    option: Annotated[
        list[str] | None, typer.Option("--option", help="Additional option of understudy run. Repeatable: --option=--hang-limit=300.")
    ] = None,
    before: Annotated[
        list[str] | None,
        typer.Option("--before", help="Line of the batch script before the command. Repeatable: --before='module load cuda'."),
    ] = None,
) -> None:
    """Print a complete batch script.

    [bold]understudy slurm script --nodes 4 --nproc-per-node 8 --gpus-per-node 8 train.py --lr 3e-4 > train.sh && sbatch train.sh[/bold]
      Four nodes train, a fifth has eight spares.

    To adapt your own batch script instead, request the additional nodes, with --no-kill, and use
    [bold]srun --no-kill --kill-on-bad-exit=0 --wait=0 understudy run --spare-nodes 1[/bold] instead of srun torchrun.
    """
    wish = Wish(
        program,
        nodes=nodes,
        spare_nodes=spare_nodes,
        ranks=nproc_per_node,
        gpus=gpus_per_node,
        cpus=cpus_per_node,
        name=name,
        time=time,
        partition=partition,
        account=account,
        qos=qos,
        notice=notice,
        requeue=requeue,
        options=option or (),
        setup=before or (),
    )
    try:
        typer.echo(write(wish), nl=False)
    except ValueError as error:
        say(str(error))
        raise typer.Exit(2) from error
