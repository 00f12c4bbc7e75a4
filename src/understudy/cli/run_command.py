"""`understudy run`: read the flags (`flags`), interpret them (`launch`), and start the job (`start`)."""

from __future__ import annotations

import contextlib
import os
import time

import typer

from understudy.cli import allocation
from understudy.cli.check.command import check
from understudy.cli.flags import Flags
from understudy.cli.launch import Usage, launch
from understudy.cli.options import takes
from understudy.cli.pod import serve_pod
from understudy.cli.run_directory import NoRun, RunDirectory
from understudy.cli.start import check_tls, execute, job_token
from understudy.cli.submitted_jobs import submit
from understudy.cli.target import service
from understudy.common.console import say
from understudy.common.names import CHAOS_VARIABLE, INTEGRATION_VARIABLE, STRICT_VARIABLE
from understudy.common.tested import untested_torch
from understudy.schedulers.base import SchedulerFailed
from understudy.schedulers.kubernetes.names import POD_VARIABLE


@takes(Flags)
def run(flags: Flags) -> None:
    """Start a training job, with spares. Replaces torchrun and accepts its options.

    [bold]understudy run --nproc-per-node 4 train.py --lr 3e-4[/bold]
      4 ranks and a spare on this machine. Everything after the script goes to the script.

    [bold]understudy run --check --nproc-per-node 2 train.py --out scratch[/bold]
      Run some steps without and with kills, and compare the results bit by bit. The script really trains and saves its files: give it a
      scratch folder.

    [bold]understudy run --nproc-per-node gpu --spares 2 -m my.package.train[/bold]
      A rank for each GPU; the job survives two losses in quick succession.

    [bold]understudy run --nnodes 2 --node-rank 0 --master-addr host0 --token-file secret train.py[/bold]
      On host0; on the second host the same with --node-rank 1.

    [bold]understudy run --nnodes 3 --node-rank 0 --rdzv-endpoint host0:29500,host1:29500,host2:29500 --token-file secret train.py[/bold]
      On host0, and the same with --node-rank 1 and 2 on the others: the job survives the loss of any one host.

    [bold]srun --no-kill --kill-on-bad-exit=0 --wait=0 understudy run --spare-nodes 1 --nproc-per-node 8 train.py[/bold]
      In a Slurm job of five nodes (#SBATCH --nodes=5 --no-kill): four train, the fifth has spares. See understudy slurm script.

    [bold]understudy run --orchestrator http://host0:29400 --nnodes 2 --nproc-per-node 8 --spares 2 train.py[/bold]
      On two nodes of an orchestrator, with two spares on other nodes. Run it once, from anywhere; Ctrl-C detaches.

    While it runs: understudy status, understudy migrate --rank 2. Afterwards: understudy report. Every worker's output is in the run
    directory, in workers/. Options may have _ in place of -, as in torchrun.
    """
    for variable, wanted in ((CHAOS_VARIABLE, flags.chaos), (STRICT_VARIABLE, flags.strict)):
        os.environ.pop(variable, None)
        if wanted:
            os.environ[variable] = "1"  # workers read it from their environment
    os.environ[INTEGRATION_VARIABLE] = flags.integration.value  # the same
    if not flags.orchestrator and (untested := untested_torch()):
        say(untested)
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    if flags.compare_every is not None:
        os.environ["UNDERSTUDY_COMPARE_EVERY"] = str(flags.compare_every)  # for the workers, also of a submitted job
    if flags.drill_bytes is not None:
        os.environ["UNDERSTUDY_DRILL_BYTES"] = str(flags.drill_bytes)
    try:
        if flags.check:
            raise typer.Exit(check(flags, name))
        if POD_VARIABLE in os.environ and flags.scheduler != "none":
            raise typer.Exit(serve_pod(flags, name))
        here = allocation.found(flags)
        if here is not None:
            name = allocation.run_name(here)
            flags = allocation.completed(flags, here)
        job = here.place.job if here is not None else flags.run_dir.name if flags.run_dir else name
        plan = launch(flags, job, submitted=bool(flags.orchestrator))
        if flags.orchestrator:
            raise typer.Exit(submit(plan, service(flags.orchestrator, flags.token_file, flags.tls_cert), flags.detach))
        token = (allocation.secret(flags, plan, here) if here is not None else None) or job_token(flags.token_file, plan)
        check_tls(flags.tls_cert, flags.tls_key, plan)
        folder = RunDirectory.create(flags.run_dir, name)
    except (Usage, NoRun) as error:
        say(str(error))
        raise typer.Exit(2) from error
    for note in plan.notes:
        say(note)
    code = execute(plan, folder, token, flags.tls_cert, flags.tls_key, here=here.place if here is not None else None)
    if here is not None and plan.spec.floating and here.place.number < len(here.place.addresses):
        with contextlib.suppress(SchedulerFailed):  # else it ends by itself when it starts
            here.give_all_back()
    raise typer.Exit(code)
