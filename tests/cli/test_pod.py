"""`understudy run` in pods of Kubernetes: of an UnderstudyJob, and of a JobSet."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.message_texts import has, refused
from typer.testing import CliRunner, Result

from understudy.agent.config import AgentConfig
from understudy.cli import app, pod
from understudy.cli.allocation import completed
from understudy.cli.flags import Flags
from understudy.cli.launch import launch
from understudy.core.model import Timeouts
from understudy.messages import kubernetes_jobs, starting
from understudy.schedulers.kubernetes.jobset import JobSetAllocation, place_of
from understudy.schedulers.kubernetes.manifest import Wish, manifest
from understudy.schedulers.kubernetes.pod_settings import PodSettings
from understudy.schedulers.registry import allocation, find

TOLD = PodSettings("gpt", 5, 4, 8, 8, -1, "http://a:1,http://b:1", "", asdict(Timeouts()), 60)


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the agent's settings; filled when the supervisor would have run."""
    found: dict[str, Any] = {}

    class Supervisor:
        def __init__(self, run: object, config: AgentConfig, token: str, *rest: object, **more: object) -> None:
            found.update(config=config, token=token, rest=rest, more=more)

        def run(self) -> int:
            return 7

    monkeypatch.setattr(pod, "Supervisor", Supervisor)
    monkeypatch.setattr(pod, "_wait_with_the_end", lambda grace: found.update(grace=grace))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    for name, value in {
        "UNDERSTUDY_POD": TOLD.to_json(),
        "UNDERSTUDY_NODE": "gpt-5",
        "UNDERSTUDY_ADDRESS": "10.0.0.7",
        "UNDERSTUDY_HOST": "w3",
        "UNDERSTUDY_TOKEN": "secret",
    }.items():
        monkeypatch.setenv(name, value)
    return found


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["run", *words])


def test_a_pod_serves_the_node_that_it_is(configured: dict[str, Any]) -> None:
    assert run("train.py", "--lr", "1").exit_code == 7
    config = configured["config"]
    assert (config.node, config.node_rank, config.address, config.domain) == ("gpt-5", 5, "10.0.0.7", "w3")
    assert (config.workers_per_node, config.spares, config.claim, config.orchestrator) == (8, 8, -1, "http://a:1,http://b:1")
    assert config.program == ("train.py", "--lr", "1") and configured["grace"] == 60 and configured["token"] == "secret"


def test_variables_that_others_set_are_not_the_users_choice(configured: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """An image, or Kubeflow, may set torchrun's variables."""
    for name, value in {"PET_NNODES": "4", "PET_NODE_RANK": "2", "PET_NPROC_PER_NODE": "8", "UNDERSTUDY_DRILL": "off"}.items():
        monkeypatch.setenv(name, value)
    assert run("train.py").exit_code == 7 and configured["config"].node_rank == 5


@pytest.mark.parametrize("words", [("--nnodes", "4"), ("--spares", "2"), ("--policy", "p"), ("--node-rank", "1"), ("--hang-limit", "5")])
def test_settings_of_the_resource_are_refused_as_options(words: tuple[str, str], configured: dict[str, Any]) -> None:
    found = run(*words, "train.py")
    assert found.exit_code == 2
    assert has(found.output, starting.POD_OPTIONS_REFUSED, options=words[0])


OTHERS = ["", "{}", "[]", json.dumps({**asdict(TOLD), "number": "x"}), json.dumps({**asdict(TOLD), "timeouts": {"beat": -1}})]


@pytest.mark.parametrize("text", OTHERS)
def test_what_another_version_would_write(text: str, configured: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERSTUDY_POD", text)
    found = run("train.py")
    assert found.exit_code == 2 and has(found.output, starting.POD_VARIABLE_REFUSED, variable="UNDERSTUDY_POD")


SET = {"UNDERSTUDY_JOBSET": "gpt", "UNDERSTUDY_SPARE_NODES": "1", "PET_NNODES": "4", "JOB_COMPLETION_INDEX": "2"}


def test_pods_of_a_jobset() -> None:
    place = place_of({**SET, "UNDERSTUDY_JOBSET_JOB": "node"})
    assert place is not None
    assert (place.number, place.nodes[place.number], place.nodes[-1]) == (2, "gpt-node-0-2", "gpt-spare-0-0")
    assert place.addresses == tuple(f"gpt-node-0-{number}.gpt" for number in range(3))
    spare = place_of({**SET, "UNDERSTUDY_JOBSET_JOB": "spare", "JOB_COMPLETION_INDEX": "0"})
    assert spare is not None and spare.number == 4
    assert place_of({}) is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"UNDERSTUDY_JOBSET_JOB": "launcher"}, "must be named node and spare"),
        ({"PET_NNODES": ""}, "PET_NNODES='' is not a number"),
        ({"PET_NNODES": "4:8"}, "PET_NNODES='4:8' is not a number"),
        ({"JOB_COMPLETION_INDEX": "٣"}, "is not a number"),
        ({"UNDERSTUDY_JOBSET_JOB": "spare", "JOB_COMPLETION_INDEX": "1"}, "pod 1 of spare is beyond"),
    ],
)
def test_a_jobset_that_is_not_like_ours(changes: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        place_of({**SET, "UNDERSTUDY_JOBSET_JOB": "node", **changes})


def test_variables_that_trainer_sets_for_torchrun_are_not_the_users_choice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A spare pod is the first of its kind, and the rendezvous is ours."""
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    environment = {**SET, "UNDERSTUDY_JOBSET_JOB": "spare", "JOB_COMPLETION_INDEX": "0", "PET_MASTER_ADDR": "gpt-node-0-0.gpt"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    here = allocation("auto", environment)
    assert isinstance(here, JobSetAllocation)
    flags = Flags(["train.py"], nnodes="4", node_rank=0, master_addr="gpt-node-0-0.gpt", master_port=29500, nproc_per_node="8")
    plan = launch(completed(flags, here), "gpt")
    assert (plan.node_rank, plan.spec.nodes, plan.spec.spare_nodes, plan.spec.spares) == (4, 4, 1, 8)
    assert plan.endpoints == tuple((f"gpt-node-0-{number}.gpt", 29400) for number in range(3))


def test_a_manifest_for_a_user() -> None:
    text = manifest(Wish(["train.py", "--lr", "3e-4"], "me/image:1", "gpt", pods=4, ranks=8, gpus=8))
    assert 'command: [understudy, run, train.py, "--lr", "3e-4"]' in text and "nvidia.com/gpu: 8" in text


def test_gpus_are_asked_for_by_the_name_that_the_command_line_gives() -> None:
    words = ["kubernetes", "job", "--name", "gpt", "--image", "me/image:1", "--gpus", "4", "train.py"]
    asked = {}
    for more in ([], ["--gpu-resource", "amd.com/gpu"]):
        shown = CliRunner().invoke(app, [*words[:-1], *more, words[-1]])
        (container,) = yaml.safe_load(shown.stdout)["spec"]["template"]["spec"]["containers"]
        asked[tuple(more)] = container["resources"]["limits"]
    assert asked == {(): {"nvidia.com/gpu": 4}, ("--gpu-resource", "amd.com/gpu"): {"amd.com/gpu": 4}}


@pytest.mark.parametrize(
    "name", ["", "gpu", "amd/gpu", "amd.com/", "amd.com/gpu: 1", "amd.com/gpu\n", "amd.com/a/b", "Amd.com/gpu", "a." * 127 + "b/c"]
)
def test_a_resource_that_kubernetes_would_not_take(name: str) -> None:
    with refused(ValueError, kubernetes_jobs.BAD_GPU_RESOURCE, name=name):
        manifest(Wish(["train.py"], "image", "gpt", gpus=1, gpu_resource=name))


@pytest.mark.parametrize("name", ["", "Gpt", "1gpt", "a" * 41, "a_b", "a-"])
def test_a_name_that_kubernetes_would_not_take(name: str) -> None:
    with pytest.raises(ValueError, match="--name"):
        manifest(Wish(["train.py"], "image", name))


def test_the_schedulers_are_found_by_name() -> None:
    assert find("jobset").name == "jobset" and find("kubernetes").name == "kubernetes"
    assert find("kubernetes").allocation({}) is None
