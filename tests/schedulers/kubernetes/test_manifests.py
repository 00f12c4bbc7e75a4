"""Every manifest below `deploy/kubernetes`, and everything that the controller makes, is what a current Kubernetes takes; what is for
others (NVSentinel, Kubeflow Trainer) is what they take. Without a cluster: `tests/kubernetes/test_manifests.py` applies them to one.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from kubeflow_trainer_api import models
from tests.kustomize import KUBECTL, KUBERNETES, NVSENTINEL, ROOT, Object, by_kubectl, documents, needs_kubectl, order, resolved
from tests.schedulers.kubernetes.objects import job, resource
from tests.schedulers.kubernetes.schema import closed, defaulted

from understudy import __version__
from understudy.common.names import TOKEN_VARIABLE
from understudy.controller import drain_requests, objects
from understudy.controller.__main__ import _parse
from understudy.schedulers.kubernetes import jobset, names, pods
from understudy.schedulers.kubernetes.manifest import Wish, manifest
from understudy.schedulers.kubernetes.resource import Job

VERSIONS = ("1.30", "1.37")
TRAINER = KUBERNETES / "trainer"
DOCKER = ROOT / "deploy" / "docker"


def installed() -> list[Object]:
    return resolved(KUBERNETES, NVSENTINEL)


def controller() -> Object:
    (found,) = [each for each in installed() if each["kind"] == "Deployment"]
    return found


def named(each: Object) -> str:
    return f"{each['kind']}-{each['metadata']['name']}"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manifest", installed(), ids=named)
def test_kubernetes_knows_every_field(manifest: Object, version: str) -> None:
    kubernetes_validate.validate(manifest, version, strict=True)


def test_no_manifest_is_left_out() -> None:
    """Every file is one that a kustomization names, or one that something else here looks at."""
    there = {file.relative_to(KUBERNETES) for file in KUBERNETES.rglob("*") if file.is_file()}
    named_ = {Path(name) for name in yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["resources"]}
    component = yaml.safe_load((NVSENTINEL / "kustomization.yaml").read_text())
    named_ |= {Path("nvsentinel") / name for name in [*component["resources"], *(patch["path"] for patch in component["patches"])]}
    others = {
        "kustomization.yaml",
        "nvsentinel/kustomization.yaml",
        "nvsentinel/values.yaml",
        "trainer/runtime.yaml",
        "trainer/trainjob.yaml",
    }
    assert there == named_ | {Path(name) for name in others}


SAMPLES: list[Object] = [
    {},
    {"tlsSecretName": "tls", "orchestrators": 3},
    {"spares": {"pods": 2, "floating": {"pods": 1, "priorityClassName": "high"}}, "topologyKey": "rack", "ranksPerPod": 8},
]


def made(sample: Object) -> Iterator[Object]:
    spec: Object = {"containers": [{"name": "trainer", "image": "mine"}], "imagePullSecrets": [{"name": "s"}], "priorityClassName": "low"}
    selects = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]}
    spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selects}}
    ours = job(**sample, template={"metadata": {"annotations": {"a": "b"}}, "spec": spec})
    yield from (what for _, what in objects.wanted(ours, "policy/v1"))
    yield pods.worker(ours, 0, ())
    yield pods.worker(ours, 7, ["w1", "w2"])
    yield pods.worker(ours, 1 << 20, ["w1"], 3, "r1")
    yield pods.orchestrator(ours, 1, "image", ["w3"])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("sample", SAMPLES)
def test_what_the_controller_makes_is_valid(sample: Object, version: str) -> None:
    for what in made(sample):
        kubernetes_validate.validate(what, version, strict=True)
        labels = what["metadata"].get("labels") or {}
        assert all(re.fullmatch(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", value) for value in labels.values())


def test_the_names_of_the_longest_job_s_pods_are_host_names() -> None:
    given = resource(orchestrators=5)
    ours = Job.of(given | {"metadata": given["metadata"] | {"name": "j" * 40}})
    most = [pods.orchestrator(ours, 4, "image"), pods.worker(ours, 10**9, ()), pods.worker(ours, 1 << 20, (), 99_999)]
    assert all(len(pod["metadata"]["name"]) <= 63 and pod["spec"]["hostname"] == pod["metadata"]["name"] for pod in most)


@pytest.mark.parametrize(
    "more",
    [{}, {"namespace": "ml", "floating": 1, "priority_class": "high", "gpus": 8, "ranks": 8}, {"gpus": 4, "gpu_resource": "amd.com/gpu"}],
)
def test_what_the_command_line_writes_is_a_job(more: Object) -> None:
    """Nothing in it is unknown, to the schema of the resource or to that of a pod."""
    (crd,) = documents(KUBERNETES / "crd.yaml")
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    written = yaml.safe_load(manifest(Wish(("train.py", "--lr", "0.1"), "my/image:1", "gpt", pods=4, **more)))
    jsonschema.Draft202012Validator(closed(schema)).validate(defaulted(schema, written["spec"]))
    written["metadata"] |= {"namespace": "ml", "uid": "u"}
    for version in VERSIONS:
        kubernetes_validate.validate(pods.worker(Job.of(written), 0, ()), version, strict=True)


def test_no_pod_of_ours_needs_more_than_the_strictest_standard_allows() -> None:
    """Pod Security `restricted`, which the namespace of the controller enforces; users may want it for theirs."""
    for spec in (controller()["spec"]["template"]["spec"], pods.orchestrator(job(), 0, "image")["spec"]):
        assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] == 65532
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        assert all(volume.keys() - {"name"} <= {"emptyDir", "secret"} for volume in spec["volumes"])
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"]
            assert context["capabilities"] == {"drop": ["ALL"]}


def restricted(spec: Object) -> bool:
    """Whether a pod fits Pod Security `restricted`, as far as its security contexts go (kubernetes.io/docs/concepts/security)."""
    pod = spec.get("securityContext") or {}
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        own = container.get("securityContext") or {}
        either = pod | own
        fits = either.get("runAsNonRoot") is True and either.get("runAsUser") != 0
        fits &= (either.get("seccompProfile") or {}).get("type") in ("RuntimeDefault", "Localhost")
        fits &= own.get("allowPrivilegeEscalation") is False and not own.get("privileged")
        capabilities = own.get("capabilities") or {}
        fits &= "ALL" in capabilities.get("drop", []) and set(capabilities.get("add", [])) <= {"NET_BIND_SERVICE"}
        if not fits:
            return False
    return True


def with_template(pod: Object | None = None, container: Object | None = None) -> Object:
    """A worker's spec, which the API server takes. `pod`, `container`: their security contexts in the template."""
    own: Object = {"name": "trainer", "image": "mine", **({} if container is None else {"securityContext": container})}
    spec: Object = {"containers": [own], "initContainers": [{"name": "first", "image": "mine"}]}
    spec |= {} if pod is None else {"securityContext": pod}
    made = pods.worker(job(template={"spec": spec}), 0, ())
    kubernetes_validate.validate(made, VERSIONS[-1], strict=True)
    return dict(made["spec"])


def test_every_pod_fits_the_restricted_standard_if_its_template_asks_for_no_root() -> None:
    ours = job(tlsSecretName="tls")
    ours.spec.template["spec"]["securityContext"] = {"runAsNonRoot": True}
    workers = [pods.worker(ours, 0, ()), pods.worker(ours, 7, ["w1"]), pods.worker(ours, 1 << 20, (), 3)]
    for pod in (*workers, pods.orchestrator(ours, 1, "image")):
        assert restricted(pod["spec"]), pod
    assert restricted(with_template({"runAsNonRoot": True}))
    assert restricted(with_template({"runAsUser": 1000, "fsGroup": 1000}, {"readOnlyRootFilesystem": True}))
    assert restricted(
        with_template({"runAsUser": 1000, "runAsNonRoot": None}, {"seccompProfile": {"type": "Localhost", "localhostProfile": "a"}})
    )


def test_only_the_container_that_asks_is_restricted() -> None:
    """One that prepares a volume as root, say, stays as it is."""
    spec = with_template(None, {"runAsUser": 1000})
    assert restricted({"containers": spec["containers"]}) and "securityContext" not in spec
    assert "securityContext" not in spec["initContainers"][0]


@pytest.mark.parametrize(
    ("pod", "container"),
    [
        (None, None),
        ({"fsGroup": 1000}, None),
        ({"runAsUser": 0}, None),
        ({"runAsNonRoot": False}, None),
        (None, {"runAsUser": 0}),
        ({"seccompProfile": {"type": "Unconfined"}}, None),
        ({"runAsUser": 1000}, {"runAsUser": 0}),
        ({"runAsUser": 1000, "runAsNonRoot": False}, None),
        (None, {"capabilities": {"add": ["IPC_LOCK"]}}),
        (None, {"privileged": True}),
        (None, {"capabilities": {"add": ["SYS_ADMIN"]}}),
    ],
)
def test_what_does_not_ask_for_no_root_stays_as_it_is(pod: Object | None, container: Object | None) -> None:
    """Its image may run as root, or as a user with a name, which `runAsNonRoot` would stop."""
    spec = with_template(pod, container)
    assert (spec.get("securityContext"), spec["containers"][0].get("securityContext")) == (pod, container)


@pytest.mark.parametrize(
    "container",
    [
        {"seccompProfile": {"type": "Unconfined"}},
        {"capabilities": {"add": ["IPC_LOCK"]}},
        {"privileged": True},
        {"allowPrivilegeEscalation": True, "capabilities": {"add": ["SYS_ADMIN"]}},
        {"capabilities": {"add": ["SYS_ADMIN"]}},
    ],
)
def test_the_security_settings_of_a_template_without_root_stay(container: Object) -> None:
    """And is nothing that the API server refuses because of what was added: no escalation, but privileged."""
    spec = with_template({"runAsNonRoot": True}, container)
    context = spec["containers"][0]["securityContext"]
    assert spec["securityContext"] == {"runAsNonRoot": True} and container.items() <= context.items()
    assert not restricted(spec)
    forced = context.get("privileged") or "SYS_ADMIN" in (context.get("capabilities") or {}).get("add", [])
    assert not (forced and context.get("allowPrivilegeEscalation") is False)


def test_a_pod_of_a_job_that_an_earlier_version_made_is_like_its_others() -> None:
    """They know each other by the secret that they have, and keep the rights that they have."""
    ours = job()
    ours.spec.template["spec"]["securityContext"] = {"runAsNonRoot": True}
    earlier = pods.worker(ours, 0, ())
    secret = {"name": TOKEN_VARIABLE, "valueFrom": {"secretKeyRef": {"name": "gpt-token", "key": "token"}}}
    container = earlier["spec"]["containers"][0]
    container["env"] = [each for each in container["env"] if each["name"] != TOKEN_VARIABLE] + [secret]
    for there, name in (([], "gpt-token-u-1"), ([pods.worker(ours, 1, ())], "gpt-token-u-1"), ([earlier], "gpt-token")):
        made = [pods.worker(ours, 2, (), there=there), pods.worker(ours, 1 << 20, (), 0, there=there)]
        for pod in (*made, pods.orchestrator(ours, 0, "image", there=there)):
            (found,) = [each for each in pod["spec"]["containers"][0]["env"] if each["name"] == TOKEN_VARIABLE]
            assert found["valueFrom"]["secretKeyRef"]["name"] == name
        assert all(restricted(pod["spec"]) == (name != "gpt-token") for pod in made)


def test_a_claimed_pod_is_like_the_others() -> None:
    """But for its name, its number, where it goes rather, and its priority."""
    spec = {
        "containers": [{"name": "trainer", "image": "mine", "resources": {"limits": {"nvidia.com/gpu": "8"}, "requests": {"cpu": "32"}}}],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "nodeSelector": {"gpu": "h200"},
        "priorityClassName": "low",
        "priority": 7,
        "runtimeClassName": "nvidia",
        "schedulerName": "other",
        "imagePullSecrets": [{"name": "s"}],
        "resourceClaims": [{"name": "nic", "resourceClaimTemplateName": "nic"}],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}],
    }
    for floating, changed in (({"pods": 1}, set()), ({"pods": 1, "priorityClassName": "high"}, {"priorityClassName", "priority"})):
        ours = job(template={"metadata": {"labels": {"queue": "a"}}, "spec": spec}, spares={"pods": 1, "floating": floating})
        worker, claimed = pods.worker(ours, 3, ["w1"]), pods.worker(ours, 1 << 20, ["w1"], 4)
        for one in (worker, claimed):
            del one["spec"]["hostname"]
            one["spec"]["containers"][0]["env"] = [e for e in one["spec"]["containers"][0]["env"] if e["name"] != names.POD_VARIABLE]
        differs = {key for key in worker["spec"].keys() | claimed["spec"].keys() if worker["spec"].get(key) != claimed["spec"].get(key)}
        assert differs == changed
        own = {f"{names.GROUP}/claim": "4", f"{names.GROUP}/number": str(1 << 20)}
        assert claimed["metadata"]["labels"] == worker["metadata"]["labels"] | own


def test_the_controller_is_started_with_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    (container,) = controller()["spec"]["template"]["spec"]["containers"]
    environment = {each["name"]: each["value"] for each in container["env"]}
    assert environment["UNDERSTUDY_IMAGE"] == container["image"] == f"understudy-controller:{__version__}"
    monkeypatch.setenv("UNDERSTUDY_IMAGE", environment["UNDERSTUDY_IMAGE"])
    arguments = _parse(container["args"])
    assert container["command"] == ["python", "-P", "-m", "understudy.controller"]
    assert arguments.group == names.GROUP
    assert arguments.metrics_port == container["ports"][0]["containerPort"] == 8080
    assert arguments.drain_requests == "nvsentinel.nvidia.com/v1alpha1"
    assert arguments.image == container["image"]


@needs_kubectl
def test_kubectl_makes_the_same_of_it() -> None:
    assert order(by_kubectl(KUBERNETES)) == order(resolved(KUBERNETES))
    overlaid, ours = order(by_kubectl(ROOT / "deploy" / "overlay")), order(installed())
    text = json.dumps(ours).replace(f"understudy-controller:{__version__}", f"example/understudy-controller:{__version__}")
    assert overlaid == json.loads(text)


@needs_kubectl
def test_another_group_is_another_name_everywhere() -> None:
    """In the way described in `kustomization.yaml`."""
    assert KUBECTL is not None
    match = re.search(r"sed '([^']+)'", (KUBERNETES / "kustomization.yaml").read_text())
    assert match is not None
    text = subprocess.run([KUBECTL, "kustomize", str(KUBERNETES)], capture_output=True, text=True, check=True).stdout
    text = subprocess.run(["sed", match[1]], input=text, capture_output=True, text=True, check=True).stdout
    assert names.GROUP not in text
    found = list(yaml.safe_load_all(text))
    (crd,) = [each for each in found if each["kind"] == "CustomResourceDefinition"]
    assert (crd["metadata"]["name"], crd["spec"]["group"]) == ("understudyjobs.jobs.example.com", "jobs.example.com")
    (deployment,) = [each for each in found if each["kind"] == "Deployment"]
    assert "jobs.example.com" in deployment["spec"]["template"]["spec"]["containers"][0]["args"]


# NVSentinel


def drains() -> Object:
    (found,) = documents(NVSENTINEL / "crd.yaml")
    return found


def drain_schema() -> jsonschema.Draft202012Validator:
    schema: Object = closed(drains()["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}
    return jsonschema.Draft202012Validator(schema)


def test_drain_requests_are_as_nvsentinel_makes_them() -> None:
    crd = drains()["spec"]
    assert (crd["names"]["plural"], crd["scope"]) == (drain_requests.PLURAL, "Namespaced")
    request = {
        "apiVersion": "nvsentinel.nvidia.com/v1alpha1",
        "kind": "DrainRequest",
        "metadata": {"name": "drain-w1-5", "namespace": "nvsentinel", "labels": {"nvsentinel.nvidia.com/node-name": "w1"}},
        "spec": {
            "nodeName": "w1",
            "checkName": "GpuXidError",
            "recommendedAction": "REPLACE_VM",
            "errorCode": ["79"],
            "healthEventID": "5",
            "entitiesImpacted": [{"type": "GPU", "value": "3"}],
            "metadata": {"k": "v"},
            "reason": "GPU has fallen off the bus",
            "podsToDrain": {"n": ["j-0"]},
        },
    }
    validator = drain_schema()
    validator.validate(request)
    done = {
        "type": drain_requests.COMPLETE,
        "status": "True",
        "reason": "NoRanksThere",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    validator.validate(request | {"status": {"conditions": [done]}})
    unlike: list[Object] = [{"spec": {}}, {"spec": {"nodeName": "w1", "node": "w1"}}, {"status": {"conditions": [done | {"reason": ""}]}}]
    for wrong in unlike:
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(request | wrong)


def test_nvsentinel_is_configured_for_what_is_installed() -> None:
    values = yaml.safe_load((NVSENTINEL / "values.yaml").read_text())["node-drainer"]
    drain, names_ = values["customDrain"], drains()["spec"]["names"]
    (template,) = documents(NVSENTINEL / "template.yaml")
    assert (drain["apiGroup"], drain["version"]) == (drains()["spec"]["group"], drains()["spec"]["versions"][0]["name"])
    assert (drain["kind"], drain["resource"]) == (names_["kind"], names_["plural"])
    assert (drain["templateConfigMapName"], drain["namespace"]) == (template["metadata"]["name"], template["metadata"]["namespace"])
    assert drain["templateFileName"] in template["data"]
    assert (drain["statusConditionType"], drain["statusConditionStatus"]) == (drain_requests.COMPLETE, "True")
    assert drain["timeout"].isdecimal(), "what its parser takes"
    assert values["userNamespaces"] == values["podDrainPolicies"] == []


EVENT: Object = {
    "NodeName": "w1",
    "CheckName": "GpuXidError",
    "RecommendedAction": "REPLACE_VM",
    "Message": 'GPU "3" has fallen off the bus: gone\n# {{ nothing }}',
    "ErrorCode": ["79"],
    "EntitiesImpacted": [{"EntityType": "GPU", "EntityValue": "3"}],
}


@needs_kubectl
@pytest.mark.parametrize("empty", [False, True])
def test_the_template_makes_a_request(empty: bool, tmp_path: Path) -> None:
    """By Go's text/template, as kubectl has it, which shows a configuration that has our data in it."""
    assert KUBECTL is not None
    event = EVENT | ({"ErrorCode": [], "EntitiesImpacted": []} if empty else {})
    data = {"HealthEvent": event, "EventID": "5f", "PodsToDrain": {} if empty else {"n": ["j-0", "j-1"], "m": ["k-0"]}}
    (template,) = documents(NVSENTINEL / "template.yaml")
    file = tmp_path / "template"
    file.write_text("{{ with (index .extensions 0).extension }}" + template["data"]["drain-template.yaml"] + "{{ end }}")
    configuration = tmp_path / "configuration"
    configuration.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "extensions": [{"name": "data", "extension": data}]}))
    words = [KUBECTL, "config", "view", "--kubeconfig", str(configuration), "--output", "go-template-file", "--template", str(file)]
    made = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    request = yaml.safe_load(made.stdout)
    drain_schema().validate(request)
    spec = request["spec"]
    assert (spec["nodeName"], spec["reason"], spec["healthEventID"]) == ("w1", event["Message"], "5f")
    assert spec.get("podsToDrain", {}) == data["PodsToDrain"]
    assert spec.get("entitiesImpacted", []) == [{"type": "GPU", "value": "3"}][: 0 if empty else 1]


# Kubeflow Trainer


def lost(given: Any, kept: Any, place: str = "") -> Iterator[str]:
    """What a model did not know, and so has dropped."""
    if isinstance(given, dict):
        for key, value in given.items():
            if not isinstance(kept, dict) or key not in kept:
                yield f"{place}.{key}"
            else:
                yield from lost(value, kept[key], f"{place}.{key}")
    elif isinstance(given, list):
        for number, value in enumerate(given):
            yield from lost(value, kept[number] if number < len(kept) else None, f"{place}[{number}]")
    elif given != kept:
        yield place


def runtime() -> Object:
    (found,) = documents(TRAINER / "runtime.yaml")
    return found


def replicated(name: str) -> Object:
    (found,) = [each for each in runtime()["spec"]["template"]["spec"]["replicatedJobs"] if each["name"] == name]
    return found["template"]  # type: ignore[no-any-return]


def test_trainer_knows_every_field() -> None:
    (train_job,) = documents(TRAINER / "trainjob.yaml")
    for model, given in (
        (models.TrainerV1alpha1ClusterTrainingRuntime, runtime()),
        (models.TrainerV1alpha1TrainJob, train_job),
    ):
        read = model.from_dict(given)
        assert read is not None
        assert list(lost(given, read.to_dict())) == []
    broken = runtime()
    broken["spec"]["template"]["spec"]["replicatedJobz"] = []
    assert list(lost(broken, models.TrainerV1alpha1ClusterTrainingRuntime.from_dict(broken).to_dict()))


def test_both_jobs_of_the_runtime_are_alike_and_spares_end_with_the_others() -> None:
    whole = runtime()["spec"]["template"]["spec"]
    node, spare = replicated("node"), replicated("spare")
    assert node["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    assert whole["successPolicy"] == {"operator": "All", "targetReplicatedJobs": ["node"]}
    pod, other = (each["spec"].pop("template")["spec"] for each in (node, spare))
    parallel = spare["spec"].pop("parallelism")
    assert parallel == spare["spec"].pop("completions") and node["spec"] == spare["spec"]
    (ours,), (theirs,) = pod.pop("containers"), other.pop("containers")
    assert pod == other
    assert (ours.pop("name"), theirs.pop("name")) == ("node", "spare")
    assert ours == theirs
    environment = {each["name"]: each for each in ours["env"]}
    assert environment[jobset.SPARES_VARIABLE]["value"] == str(parallel)
    assert environment[TOKEN_VARIABLE]["valueFrom"]["secretKeyRef"] == {"name": "understudy-token", "key": "token"}
    injected = runtime()["spec"]["mlPolicy"]["torch"]["envInjection"]["targets"]
    assert injected == [{"jobName": "spare", "containerNames": ["spare"]}]
    assert {each["name"] for each in runtime()["spec"]["template"]["spec"]["replicatedJobs"]} == {jobset.TRAINS, jobset.WAITS}
    for name, label in ((jobset.SET_VARIABLE, "jobset-name"), (jobset.JOB_VARIABLE, "replicatedjob-name")):
        assert environment[name]["valueFrom"]["fieldRef"]["fieldPath"] == f"metadata.labels['jobset.sigs.k8s.io/{label}']"


def test_the_example_is_of_our_runtime_and_patches_what_is_there() -> None:
    (train_job,) = documents(TRAINER / "trainjob.yaml")
    spec = train_job["spec"]
    assert spec["runtimeRef"]["name"] == runtime()["metadata"]["name"]
    scripts = {each["name"]: each["value"] for each in spec["trainer"]["env"]}
    for patch in spec["runtimePatches"]:
        for change in patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]:
            there = replicated(change["name"])["spec"]["template"]["spec"]["containers"]
            (container,) = change["template"]["spec"]["template"]["spec"]["containers"]
            assert container["name"] in [each["name"] for each in there]
            if change["name"] == "node":
                assert "env" not in container, "Trainer takes those of `trainer.env` only"
            else:
                assert {each["name"]: each["value"] for each in container["env"]} == scripts


# The images


def control_plane() -> list[str]:
    lines = (DOCKER / "control-plane.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_the_control_plane_needs_what_its_image_has_and_no_torch() -> None:
    script = Path(__file__).with_name("control_plane_imports.py")
    wanted = [re.split("[<>=]", line)[0] for line in control_plane()]
    ran = subprocess.run([sys.executable, str(script), *wanted], capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr
    direct = json.loads(ran.stdout)
    with_them = {"starlette", "typing_extensions", "urllib3"}  # their names are in the interfaces of those that bring them
    assert {owner for top, owners in direct.items() if top not in with_them for owner in owners} == set(wanted)


def test_its_bounds_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(control_plane()) <= {*project["dependencies"], *project["optional-dependencies"]["kubernetes"]}
    (torch,) = [each for each in project["dependencies"] if each.startswith("torch")]
    assert f'ARG TORCH="{torch}"' in (DOCKER / "Dockerfile").read_text()
