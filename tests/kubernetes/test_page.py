"""The commands of docs/operate/kubernetes.md as printed, for a user who has only a training script. A node loses its
power, another one is drained.

kubectl is a current one, and the server an old one. It has budgets in another version (`as_here`), which kubectl complains of, and does not
know the rules in the schema, for which kubectl would refuse it beforehand: `--validate=false` prevents that.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator

import pytest

from tests.faults.harness import ROOT
from tests.integration.processes import wait_until
from tests.integration.training import LONG
from tests.kubernetes.api import Object
from tests.kubernetes.cluster import Cluster, needs_kubernetes
from tests.kubernetes.installation import SYSTEM, mend, there
from tests.kubernetes.jobs import API, GROUP, KIND
from tests.kustomize import needs_kubectl

pytestmark = [needs_kubernetes, needs_kubectl, pytest.mark.timeout(1200)]
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/understudyjobs.understudy.dev"
OLD = 'no matches for kind "PodDisruptionBudget" in version "policy/v1"'


@pytest.fixture
def bare(kubernetes: Cluster) -> Iterator[Cluster]:
    """Every node has one GPU. The test's changes to the installation are undone."""
    _gpus(kubernetes, "1")
    yield kubernetes
    _gpus(kubernetes, "4")
    mend(kubernetes)


def _gpus(cluster: Cluster, count: str) -> None:
    for name in cluster.nodes:
        status = {"capacity": {"nvidia.com/gpu": count}, "allocatable": {"nvidia.com/gpu": count}}
        cluster.api.patch(f"/api/v1/nodes/{name}/status", {"status": status})


def test_the_page(bare: Cluster) -> None:
    page = (ROOT / "docs" / "operate" / "kubernetes.md").read_text()
    install, job, drain = re.findall(r"^```bash\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    image = bare.image("my/image")
    for file in (ROOT / "examples").glob("*.py"):
        shutil.copy(file, image / ("train.py" if file.name == "train_gpt.py" else file.name))

    script = (image / "train.py").read_text()
    for option, value in (
        ("--steps", "1_000_000"),
        ("--layers", "2"),
        ("--width", "96"),
    ):  # longer, and less work
        shorter = re.sub(rf'("{option}", type=int, default)=\d+', rf"\g<1>={value}", script)
        assert shorter != script
        script = shorter
    (image / "train.py").write_text(script)

    (remove,) = re.findall(r"`(kubectl delete -k [^`]+)`", page)
    _run(bare, remove, but=OLD)
    for path in (f"/api/v1/namespaces/{SYSTEM}", CRD):  # kubectl waits for their end, but not where it had something to complain of
        wait_until(lambda path=path: not there(bare, path), f"the end of {path}", LONG)  # type: ignore[misc]
    apply, wait = install.splitlines()
    _run(bare, f"{apply} --validate=false", but=OLD)
    _run(bare, wait)

    shown = _run(bare, job)
    assert re.search(r"^gpt +(Training|Recovering) +\d+ +0 +0 ", shown, re.MULTILINE), shown
    assert re.search(r"^gpt-2 .* active +2 +0$", shown, re.MULTILINE) and re.search(r"^gpt-4 .* spare +", shown, re.MULTILINE), shown
    explained = _run(bare, "kubectl explain understudyjob.spec")
    assert "spares" in explained and "policy" in explained

    bare.nodes[_node(bare, 1)].off()
    _wait(bare, lambda: _pod(bare, 1) == "gpt-4", "rank 1 on the spare pod")
    _wait(bare, lambda: "RanksReplaced" in _run(bare, "kubectl describe understudyjob gpt"), "the event")
    _wait(bare, lambda: _status(bare)["spares"] == 1 and _status(bare)["phase"] == "Training", "the spare of the next pod")

    drained = _node(bare, 2)
    shown = _run(bare, drain)
    assert f"node/{drained} drained" in shown and "RanksMoved" in shown and f"node/{drained} uncordoned" in shown, shown
    _wait(bare, lambda: _pod(bare, 2) not in ("", "gpt-2"), "rank 2 elsewhere")
    assert _status(bare)["phase"] in ("Training", "Recovering") and _status(bare)["incidents"] == 2
    _run(bare, "kubectl delete understudyjob gpt")
    wait_until(lambda: not bare.all_of("Pod"), "the end of its pods", LONG)


def _run(cluster: Cluster, command: str, but: str = "") -> str:
    """Run a command and return its output. It must succeed; with `but`, it may have this one complaint."""
    done = cluster.shell(command)
    if but and done.returncode != 0:
        assert but in done.stderr, done.stderr
    else:
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def _wait(cluster: Cluster, condition: Callable[[], bool], what: str) -> None:
    def there() -> bool:
        assert _status(cluster)["phase"] in ("Training", "Recovering"), f"{_status(cluster)}, before {what}"
        return condition()

    try:
        wait_until(there, what, LONG)
    except AssertionError as error:
        shown = _run(cluster, "kubectl get pods -o wide --show-labels; kubectl get nodes; kubectl describe understudyjob gpt")
        raise AssertionError(f"{error}\n{shown}") from None


def _status(cluster: Cluster) -> Object:
    return dict(cluster.get(KIND, "gpt", API)["status"])


def _pod(cluster: Cluster, rank: int) -> str:
    found = cluster.all_of("Pod", labelSelector=f"{GROUP}/job=gpt,{GROUP}/rank={rank}")
    return str(found[0]["metadata"]["name"]) if len(found) == 1 else ""


def _node(cluster: Cluster, rank: int) -> str:
    return str(cluster.get("Pod", _pod(cluster, rank))["spec"]["nodeName"])
