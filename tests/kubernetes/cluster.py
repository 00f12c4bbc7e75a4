"""A Kubernetes cluster for tests: a real control plane (`control_plane.py`) and six nodes that are stand-ins (`kubelet.py`).

A test has its own namespace in it, in which it applies manifests, waits, and reads pods; it can disturb every node (`host.py`)
and do what operators do (`operators.py`). `kubelet.py`, `runtime.py`, `names.py` and
`control_plane.py` list what cannot be shown here. Needs root.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml

from tests.faults.harness import ROOT
from tests.integration.processes import wait_until
from tests.kubernetes.api import STRATEGIC, Access, Api, Object, Refused
from tests.kubernetes.control_plane import PORT, TOKEN, ControlPlane, why_not
from tests.kubernetes.host import Node
from tests.kubernetes.network import Switch
from tests.kubernetes.operators import Operator
from tests.kubernetes.runtime import Attempt, Sandbox
from understudy.common.dying import dying_with

NODES = tuple(f"w{number}" for number in range(1, 7))
LIMIT = 120.0

needs_kubernetes = pytest.mark.skipif(bool(why_not()), reason=why_not())


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.switch = Switch()
        self.plane = ControlPlane(folder / "plane", self.switch)
        self.api = self.api_as(TOKEN)
        self.operator = Operator(self.api)
        self.nodes = {name: Node(folder, self.plane, self.switch, name, number) for number, name in enumerate(NODES, 1)}
        self.namespace = "default"
        self._names: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count()
        self._resources: dict[tuple[str, str], tuple[str, bool]] = {}
        self._elsewhere: list[str] = []  # paths of objects that a test has created outside of its namespace

    def api_as(self, token: str) -> Api:
        """For whom this token is."""
        return Api(Access(self.plane.address, PORT, self.plane.folder / "ca.crt", token))

    def start(self) -> None:
        self.plane.start()
        self._start_names()
        for node in self.nodes.values():
            node.begin()
        for node in self.nodes.values():
            node.finish()
        self.wait_for_nodes()

    def _start_names(self) -> None:
        words = [sys.executable, "-m", "tests.kubernetes.names", self.plane.address, str(PORT), str(self.plane.folder / "ca.crt"), TOKEN]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        dies = dying_with(os.getpid(), signal.SIGKILL)
        with (self.folder / "names.log").open("ab") as log:
            self._names = subprocess.Popen(
                self.switch.inside(*words), env=environment, stdout=log, stderr=log, start_new_session=True, preexec_fn=dies
            )

    def stop(self) -> None:
        for node in self.nodes.values():
            node.off()
        if self._names is not None:
            self._names.kill()
            self._names.wait()
        self.plane.stop()
        self.switch.remove()

    # One test's part

    def begin(self) -> None:
        """Create the test's namespace; pods can be created in it when this returns."""
        self.namespace = f"test-{next(self._numbers)}"
        self.api.create("/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        for path in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
            self.wait_for(lambda path=path: self._there(f"/api/v1/namespaces/{self.namespace}/{path}"), path)  # type: ignore[misc]

    def end(self) -> None:
        """Delete what is left of a test, and repair the cluster."""
        self.plane.start()
        for node in self.nodes.values():
            if not node.is_on:
                node.on()
                continue
            node.heal()
            if not node.has_kubelet:
                node.start_kubelet()
        for name in self.nodes:
            self.operator.uncordon(name)
            for taint in self.operator.taints(name):
                if not taint.startswith("node.kubernetes.io/"):
                    self.operator.untaint(name, taint.partition("=")[0])
        for path in reversed(self._elsewhere):
            self._delete(path)
        self._elsewhere.clear()
        self.api.delete(f"/api/v1/namespaces/{self.namespace}")  # its controllers can make nothing new from here on
        for pod in self.all_of("Pod"):
            self.delete("Pod", pod["metadata"]["name"], grace=0)
        self.wait_for(lambda: not self.all_of("Pod") and self._over(), f"the end of all pods of {self.namespace}")
        self.wait_for_nodes()
        for node in self.nodes.values():
            node.forget_ended()

    def _over(self) -> bool:
        return all((sandbox.folder / "over").exists() for _, sandbox in self._sandboxes("*"))

    def image(self, name: str) -> Path:
        """Return the folder for an image's content, in place of a build and a registry."""
        folder = self.folder / "images" / quote(name, safe="")
        folder.mkdir(parents=True)
        return folder

    def shell(self, script: str, limit: float = 600.0) -> subprocess.CompletedProcess[str]:
        """In an operator's shell, with kubectl and the commands of this project, in the test's namespace."""
        settings = yaml.safe_load(self.plane.kubeconfig.read_text())
        settings["contexts"][0]["context"]["namespace"] = self.namespace
        own = self.folder / f"kubeconfig-{self.namespace}"
        own.write_text(yaml.safe_dump(settings))
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "KUBECONFIG": str(own), "PATH": path, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        words = self.switch.inside("bash", "-o", "pipefail", "-ec", script)
        return subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit)

    # Objects

    def apply(self, manifest: Object | Path) -> Object:
        """Apply every document of a file, by default in the test's namespace. Return the last of them, as the server has it.

        Like `kubectl apply`, except that fields that a manifest does not mention any more stay, and lists are replaced. (Server-side apply
        would be the modern way; that of this old server refuses ports without a protocol.)
        """
        documents = [manifest] if isinstance(manifest, dict) else [found for found in yaml.safe_load_all(manifest.read_text()) if found]
        applied: Object = {}
        for document in documents:
            path, namespaced = self._resource(document["apiVersion"], document["kind"])
            name = document["metadata"]["name"]
            namespace = document["metadata"].get("namespace", self.namespace)
            kinds = f"{path[0]}/namespaces/{namespace}/{path[1]}" if namespaced else f"{path[0]}/{path[1]}"
            try:
                applied = self.api.create(kinds, document)
                if not namespaced or namespace != self.namespace:
                    self._elsewhere.append(f"{kinds}/{name}")
            except Refused as refused:
                if refused.status != 409:
                    raise
                applied = self.api.patch(f"{kinds}/{name}", document)
        return applied

    def path(self, kind: str, name: str = "", api: str = "v1") -> str:
        """In the test's namespace, for kinds that have one."""
        (group, resource), namespaced = self._resource(api, kind)
        inside = f"/namespaces/{self.namespace}" if namespaced else ""
        return f"{group}{inside}/{resource}" + (f"/{name}" if name else "")

    def _resource(self, api: str, kind: str) -> tuple[tuple[str, str], bool]:
        """Where objects of this kind are, and whether in namespaces."""
        group = f"/api/{api}" if "/" not in api else f"/apis/{api}"
        if (api, kind) not in self._resources:
            for found in self.api.get(group)["resources"]:
                if "/" not in found["name"]:
                    self._resources[api, found["kind"]] = (found["name"], found["namespaced"])
        resource, namespaced = self._resources[api, kind]
        return (group, resource), namespaced

    def get(self, kind: str, name: str, api: str = "v1") -> Object:
        return self.api.get(self.path(kind, name, api))

    def all_of(self, kind: str, api: str = "v1", **query: str) -> list[Object]:
        """`query`: labelSelector, fieldSelector."""
        found: list[Object] = self.api.get(self.path(kind, api=api), **query)["items"] or []
        return found

    def patch(self, kind: str, name: str, content: Object, api: str = "v1", how: str = STRATEGIC) -> Object:
        return self.api.patch(self.path(kind, name, api), content, how)

    def delete(self, kind: str, name: str, api: str = "v1", grace: int | None = None) -> None:
        """One that is not there is not missed."""
        options = {} if grace is None else {"gracePeriodSeconds": grace}
        self._delete(self.path(kind, name, api), **options)

    def _delete(self, path: str, **options: int) -> None:
        try:
            self.api.delete(path, **options)
        except Refused as refused:
            if refused.status != 404:
                raise

    def _there(self, path: str) -> bool:
        try:
            self.api.get(path)
        except Refused as refused:
            if refused.status == 404:
                return False
            raise
        return True

    def has(self, kind: str, name: str, api: str = "v1") -> bool:
        return self._there(self.path(kind, name, api))

    # Waiting

    def wait_for(self, condition: Callable[[], object], what: str, limit: float = LIMIT) -> None:
        wait_until(condition, what, limit)

    def wait_for_nodes(self, *names: str, ready: str = "True") -> None:
        """`ready`: the status of the condition Ready. Ready ones have no taint of a silent node any more, either."""

        def there() -> bool:
            found = {node["metadata"]["name"]: node for node in self.api.get("/api/v1/nodes")["items"] or []}
            return all(_is_ready(found.get(name), ready) for name in names or self.nodes)

        wait_until(there, f"nodes {', '.join(names)} Ready={ready}", LIMIT)

    def wait_for_pod(self, name: str, *phases: str, limit: float = LIMIT) -> Object:
        """Until it is in one of these phases, or, with none, until it is ready."""

        def there() -> bool:
            pod = self.get("Pod", name)
            if phases:
                return pod["status"].get("phase") in phases
            return self.is_ready(pod)

        try:
            wait_until(there, f"pod {name} {' or '.join(phases) or 'ready'}", limit)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.get('Pod', name)['status']}\n{self.log(name)}") from None
        return self.get("Pod", name)

    @staticmethod
    def is_ready(pod: Object) -> bool:
        return any(found["type"] == "Ready" and found["status"] == "True" for found in pod["status"].get("conditions") or [])

    def wait_for_end_of(self, pod: str, limit: float = LIMIT) -> None:
        wait_until(lambda: not self.has("Pod", pod), f"the end of pod {pod}", limit)

    # Inside of pods

    def _sandboxes(self, pod: str, namespace: str = "") -> list[tuple[Node, Sandbox]]:
        """Of all pods of this name, the oldest first. `namespace`: the test's, if none is given."""
        found = [
            (folder.stat().st_ctime, node, Sandbox(folder, node.folder / "layers" / folder.name))
            for node in self.nodes.values()
            for folder in (node.folder / "pods").glob(f"{namespace or self.namespace}_{pod}_*")
        ]
        return [(node, sandbox) for _, node, sandbox in sorted(found, key=lambda entry: entry[0])]

    def log(self, pod: str, container: str | None = None, attempt: int = -1) -> str:
        """Return the output of a container: by default of the newest pod of this name, its last attempt, its only container. "" where
        there is none.
        """
        for _, sandbox in reversed(self._sandboxes(pod)):
            names = [container] if container else [path.name for path in (sandbox.folder / "containers").glob("*")]
            logs = [path for name in names if (path := _log(sandbox, name, attempt)) is not None]
            return "".join(path.read_text(errors="replace") for path in logs)
        return ""

    def run_in(self, pod: str, *words: str, container: str | None = None) -> subprocess.CompletedProcess[str]:
        """In its only container, or in that one, as `kubectl exec` would."""
        node, sandbox = self._sandboxes(pod)[-1]
        (name,) = [container] if container else [path.name for path in (sandbox.folder / "containers").glob("*")]
        command = node.command(*Attempt(_log_folder(sandbox, name)).command(*words))
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT)

    def _running(self, pod: str, namespace: str) -> tuple[Node, list[int]]:
        """The node of the newest pod of this name, and the first processes of its containers, as the node counts."""
        node, sandbox = self._sandboxes(pod, namespace)[-1]
        running = [attempt.pid for attempt in sandbox.all_attempts() if not (attempt.folder / "exit").exists()]
        return node, [pid for pid in running if pid is not None] if node.is_on else []

    def is_running(self, pod: str, namespace: str = "") -> bool:
        """As its node knows it, whatever the API server has."""
        return bool(self._running(pod, namespace)[1])

    def kill(self, pod: str, namespace: str = "") -> None:
        """SIGKILL to all that runs in it, as when the machine has no memory left; what becomes of it is the kubelet's affair."""
        node, found = self._running(pod, namespace)
        assert found, f"nothing runs in {pod}"
        subprocess.run(node.command("kill", "-KILL", *map(str, found)), check=True)

    def processes(self, pod: str) -> list[str]:
        """The command lines of what runs in all pods of this name, deleted ones included, on nodes that are on."""
        found = []
        for node, sandbox in self._sandboxes(pod):
            if node.is_on:
                own = Path(f"/proc/{node.pid}/root/proc")  # of the node: it counts as the attempts do
                spaces = {_space(own / str(attempt.pid)) for attempt in sandbox.all_attempts() if not (attempt.folder / "exit").exists()}
                those = [path for path in own.iterdir() if path.name.isdigit() and _space(path) in spaces - {None}]
                found += [line for path in those if (line := _command_line(path))]
        return found


def _space(process: Path) -> str | None:
    with contextlib.suppress(OSError):
        return os.readlink(process / "ns" / "pid")
    return None


def _command_line(process: Path) -> str:
    with contextlib.suppress(OSError):
        return (process / "cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    return ""


def _log_folder(sandbox: Sandbox, container: str, attempt: int = -1) -> Path:
    numbers = sorted(int(path.name) for path in (sandbox.folder / "containers" / container).iterdir())
    return sandbox.folder / "containers" / container / str(numbers[attempt])


def _log(sandbox: Sandbox, container: str, attempt: int) -> Path | None:
    with contextlib.suppress(FileNotFoundError, IndexError):
        path = _log_folder(sandbox, container, attempt) / "log"
        return path if path.exists() else None
    return None


def _is_ready(node: Object | None, ready: str) -> bool:
    if node is None:
        return False
    conditions = {found["type"]: found["status"] for found in node["status"].get("conditions") or []}
    silent = any(taint["key"].startswith("node.kubernetes.io/") for taint in node["spec"].get("taints") or [])
    return conditions.get("Ready") == ready and not (ready == "True" and silent and not node["spec"].get("unschedulable"))


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    made = Cluster(folder)
    try:
        made.start()
        yield made
    except BaseException:
        for log in sorted([*folder.glob("*.log"), *folder.glob("plane/*.log"), *folder.glob("nodes/*/log")]):
            print(f"--- {log.relative_to(folder)}\n{log.read_text(errors='replace')[-3000:]}")
        raise
    finally:
        made.stop()
