"""`understudy kubernetes`: print manifests, and run the controller of UnderstudyJobs."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from understudy.common.console import say
from understudy.schedulers.kubernetes.manifest import Wish, manifest
from understudy.schedulers.kubernetes.names import GROUP

kubernetes = typer.Typer(
    name="kubernetes",
    help="Print a job's manifest for a Kubernetes cluster, or run the controller.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@kubernetes.command(context_settings={"allow_interspersed_args": False})
def job(
    program: Annotated[
        list[str], typer.Argument(metavar="SCRIPT [ARGS]", help="The training script in the image, then its own arguments.")
    ],
    name: Annotated[str, typer.Option("--name", help="Name of the job.")],
    image: Annotated[str, typer.Option("--image", help="Image with this package and the script.")],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the job.")] = "",
    pods: Annotated[int, typer.Option("--pods", min=1, help="Pods with ranks.")] = 1,
    spare_pods: Annotated[int, typer.Option("--spare-pods", min=0, help="Additional pods, with spares only.")] = 1,
    floating_spares: Annotated[
        int, typer.Option("--floating-spares", min=0, help="Maximum number of pods requested when a rank has no other spare.")
    ] = 0,
    priority_class: Annotated[
        str, typer.Option("--priority-class", help="Priority class of floating spares, higher than that of other pods.")
    ] = "",
    nproc_per_node: Annotated[int, typer.Option("--nproc-per-node", min=1, help="Ranks in each pod.")] = 1,
    gpus: Annotated[int, typer.Option("--gpus", min=0, help="GPUs requested for each pod.")] = 0,
    gpu_resource: Annotated[
        str, typer.Option("--gpu-resource", help="Resource name of a GPU in the nodes' device plugin: amd.com/gpu for AMD's.")
    ] = "nvidia.com/gpu",
    option: Annotated[
        list[str] | None, typer.Option("--option", help="Additional option of understudy run. Repeatable: --option=--log-dir=/logs.")
    ] = None,
) -> None:
    """Print a complete manifest.

    [bold]understudy kubernetes job --name gpt --image my/image --pods 4 --nproc-per-node 8 --gpus 8 train.py | kubectl apply -f -[/bold]
      Four pods train, a fifth has eight spares.
    """
    wish = Wish(
        program,
        image=image,
        name=name,
        namespace=namespace,
        pods=pods,
        spare_pods=spare_pods,
        floating=floating_spares,
        ranks=nproc_per_node,
        gpus=gpus,
        gpu_resource=gpu_resource,
        priority_class=priority_class,
        options=option or (),
    )
    try:
        typer.echo(manifest(wish), nl=False)
    except ValueError as error:
        say(str(error))
        raise typer.Exit(2) from error


@kubernetes.command()
def controller(
    image: Annotated[
        str,
        typer.Option(
            "--image", envvar="UNDERSTUDY_IMAGE", help="Image of the orchestrators' pods, usually the one in which this command runs."
        ),
    ],
    group: Annotated[str, typer.Option("--group", help="API group of the resource, if the cluster uses another one.")] = GROUP,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Manage only the jobs of this namespace.")] = "",
    drain_requests: Annotated[
        str, typer.Option("--drain-requests", help="GROUP/VERSION of NVSentinel's DrainRequests, if the cluster has them.")
    ] = "",
    metrics_port: Annotated[
        int, typer.Option("--metrics-port", min=0, help="Port for /metrics, which is also the liveness check; 0: none.")
    ] = 0,
) -> None:
    """Manage all UnderstudyJobs. Runs until it is stopped, in the cluster (kubectl apply -k deploy/kubernetes) or here with a kubeconfig.

    Several may run; one of them leads. Ending it does not end any job.
    """
    command = [sys.executable, "-P", "-m", "understudy.controller", "--image", image, "--group", group, "--metrics-port", str(metrics_port)]
    command += ["--namespace", namespace] if namespace else []
    command += ["--drain-requests", drain_requests] if drain_requests else []
    os.execv(sys.executable, command)
