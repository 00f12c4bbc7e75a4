"""The test's own Kubernetes cluster itself: pods run as on a real one, as far as the adapter's tests lean on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.processes import wait_until
from tests.kubernetes.api import Refused
from tests.kubernetes.cluster import Cluster, needs_kubernetes
from tests.kubernetes.pods import PYTHON, SLEEPS, pod

pytestmark = needs_kubernetes

SERVES = """
import socket
server = socket.create_server(("", 7000))
print("listens", flush=True)
while True:
    connection, _ = server.accept()
    connection.sendall(b"hello " + connection.recv(100))
    connection.close()
"""
ASKS = """
import socket, sys, time
while True:  # it takes a moment until a name is known
    try:
        address = socket.gethostbyname(sys.argv[1])
        break
    except socket.gaierror:
        time.sleep(0.1)
connection = socket.create_connection((address, 7000))
connection.sendall(socket.gethostname().encode())
print(connection.recv(100).decode())
"""
LISTS = """
import sys
from kubernetes import client, config
config.load_incluster_config()
core = client.CoreV1Api()
print([pod.metadata.name for pod in core.list_namespaced_pod(sys.argv[1]).items])
try:
    core.list_namespaced_secret(sys.argv[1])
except client.ApiException as error:
    print(error.status)
"""


def test_a_pod_runs_with_what_others_give_it(kubernetes_cluster: Cluster) -> None:
    cluster = kubernetes_cluster
    cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": {"part": "open sesame"}})
    cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "words"}, "data": {["a", "b.txt"][1]: "of many"}})
    fields = {
        "NAME": "metadata.name",
        "SPACE": "metadata.namespace",
        "ID": "metadata.uid",
        "ROLE": "metadata.labels['role']",
        "ADDRESS": "status.podIP",
        "NODE": "spec.nodeName",
    }
    environment: list[Any] = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]
    environment.append({"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "key", "key": "part"}}})
    environment.append({"name": "BOTH", "value": "$(KEY), $(ROLE), $$(ROLE)"})
    shows = "import json, os, pathlib; print(json.dumps([dict(os.environ), *(pathlib.Path(p).read_text() for p in "
    shows += "('/secrets/part', '/words/b.txt', '/about/labels', '/etc/hostname')), os.getpid(), os.getcwd(), os.listdir('/tmp')]))"
    volumes = [
        {"name": "secrets", "secret": {"secretName": "key"}},
        {"name": "words", "configMap": {"name": "words"}},
        {"name": "about", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    ]
    mounts = [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in volumes]
    spec: dict[str, Any] = {"volumes": volumes, "restartPolicy": "Never"}
    made = pod("one", [*PYTHON, shows], labels={"role": "spare"}, container={"env": environment, "volumeMounts": mounts}, **spec)
    made["spec"]["containers"][0]["workingDir"] = "/var"
    cluster.apply(made)
    found = cluster.wait_for_pod("one", "Succeeded")
    variables, key, words, labels, hostname, pid, folder, files = json.loads(cluster.log("one"))
    assert variables["KEY"] == key == "open sesame"
    assert variables["BOTH"] == "open sesame, spare, $(ROLE)"
    assert (variables["NAME"], variables["SPACE"], variables["ROLE"]) == ("one", cluster.namespace, "spare")
    assert variables["ID"] == found["metadata"]["uid"]
    assert variables["NODE"] == found["spec"]["nodeName"]
    assert variables["ADDRESS"] == found["status"]["podIP"]
    assert (words, labels, hostname, pid, folder) == ("of many", 'role="spare"', "one\n", 1, "/var")
    assert not [name for name in files if "pytest" in name], "/tmp is its own"


def test_pods_find_each_other_and_the_service_account_s_rights_count(kubernetes_cluster: Cluster) -> None:
    cluster = kubernetes_cluster
    service = {"clusterIP": "None", "selector": {"group": "g"}, "publishNotReadyAddresses": True}
    cluster.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "peers"}, "spec": service})
    role = {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]}
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "reader"}}
    cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}})
    cluster.apply({**rbac, "kind": "Role", **role})
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": cluster.namespace}
    binding = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}, "subjects": [subject]}
    cluster.apply({**rbac, "kind": "RoleBinding", **binding})
    group: dict[str, Any] = {"labels": {"group": "g"}, "subdomain": "peers"}
    cluster.apply(pod("server", [*PYTHON, SERVES], hostname="first", **group))
    wait_until(lambda: "listens" in cluster.log("server"), "the server")
    for number, name in enumerate(("first.peers", f"first.peers.{cluster.namespace}.svc")):
        cluster.apply(pod(f"asks-{number}", [*PYTHON, ASKS, name], hostname=f"h{number}", restartPolicy="Never", **group))
        cluster.wait_for_pod(f"asks-{number}", "Succeeded")
        assert cluster.log(f"asks-{number}") == f"hello h{number}\n"
    cluster.apply(pod("lists", [*PYTHON, LISTS, cluster.namespace], serviceAccountName="reader", restartPolicy="Never"))
    cluster.wait_for_pod("lists", "Succeeded")
    names, refused = cluster.log("lists").splitlines()
    assert "server" in names
    assert refused == "403"


def test_a_container_is_restarted_by_its_policy(kubernetes_cluster: Cluster) -> None:
    cluster = kubernetes_cluster
    counts = "n=$(cat /kept/n 2>/dev/null || echo 0); echo $((n + 1)) >/kept/n; echo attempt $n; test $n -ge 2 || exit 7"
    kept: dict[str, Any] = {"volumes": [{"name": "kept", "emptyDir": {}}]}
    mounted = {"volumeMounts": [{"name": "kept", "mountPath": "/kept"}]}
    cluster.apply(pod("until-good", ["sh", "-c", counts], container=mounted, restartPolicy="OnFailure", **kept))
    cluster.apply(pod("never", ["sh", "-c", "exit 3"], restartPolicy="Never"))
    cluster.apply(pod("killed", ["sh", "-c", "(kill -9 $$); kill -9 1; sh -c 'kill -9 $$'; exit 9"], restartPolicy="Never"))
    cluster.apply(pod("always", ["true"], restartPolicy="Always"))
    cluster.apply(pod("missing", ["there-is-no-such-program"], restartPolicy="Never"))
    ended = cluster.wait_for_pod("until-good", "Succeeded")["status"]["containerStatuses"][0]
    assert ended["restartCount"] == 2
    assert [cluster.log("until-good", attempt=attempt) for attempt in range(3)] == [f"attempt {n}\n" for n in range(3)]
    state = cluster.wait_for_pod("never", "Failed")["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (state["exitCode"], state["reason"]) == (3, "Error")
    assert cluster.wait_for_pod("killed", "Failed")["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 9
    assert cluster.wait_for_pod("missing", "Failed")["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 128
    cluster.wait_for(lambda: _restarts(cluster, "always") >= 2, "two restarts")
    assert cluster.get("Pod", "always")["status"]["phase"] == "Running"


def _restarts(cluster: Cluster, name: str) -> int:
    states = cluster.get("Pod", name)["status"].get("containerStatuses") or []
    return int(states[0]["restartCount"]) if states else 0


def test_several_containers_in_sequence_and_in_parallel(kubernetes_cluster: Cluster, tmp_path: Path) -> None:
    cluster = kubernetes_cluster
    mounts = [{"name": "kept", "mountPath": "/kept"}, {"name": "memory", "mountPath": "/memory"}, {"name": "out", "mountPath": "/out"}]
    made = pod("several", ["sh", "-c", "cat /kept/first /kept/second >/out/all; while ! test -e /memory/end; do sleep 0.1; done"])
    spec = made["spec"]
    spec["initContainers"] = [
        {"name": name, "image": "none", "command": ["sh", "-c", f"echo {name} >/kept/{name}; cat /kept/first"], "volumeMounts": mounts}
        for name in ("first", "second")
    ]
    other = "until test -e /out/all; do sleep 0.1; done; touch /memory/end"
    spec["containers"].append({"name": "other", "image": "none", "command": ["sh", "-c", other]})
    for container in spec["containers"]:
        container["volumeMounts"] = mounts
    spec["restartPolicy"] = "Never"
    spec["volumes"] = [
        {"name": "kept", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
        {"name": "out", "hostPath": {"path": str(tmp_path)}},
    ]
    cluster.apply(made)
    found = cluster.wait_for_pod("several", "Succeeded")
    assert (tmp_path / "all").read_text() == "first\nsecond\n"
    assert [state["state"]["terminated"]["exitCode"] for state in found["status"]["initContainerStatuses"]] == [0, 0]


def test_a_deleted_pod_ends_by_hook_and_signal_and_otherwise_by_force(kubernetes_cluster: Cluster, tmp_path: Path) -> None:
    cluster = kubernetes_cluster
    out: dict[str, Any] = {"volumes": [{"name": "out", "hostPath": {"path": str(tmp_path)}}]}
    mounted = {"volumeMounts": [{"name": "out", "mountPath": "/out"}]}
    hook = {"lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", "echo hook >>/out/order"]}}}}
    gentle = "trap 'echo signal >>/out/order; exit 0' TERM; touch /out/ready; while :; do sleep 0.1; done"
    cluster.apply(pod("gentle", ["sh", "-c", gentle], container={**mounted, **hook}, terminationGracePeriodSeconds=100, **out))
    cluster.apply(pod("deaf", ["sh", "-c", "touch /out/deaf; sleep 1000; true"], container=mounted, terminationGracePeriodSeconds=1, **out))
    cluster.wait_for(lambda: (tmp_path / "ready").exists() and (tmp_path / "deaf").exists(), "both pods")
    cluster.delete("Pod", "gentle")
    cluster.wait_for_end_of("gentle", limit=60)
    assert (tmp_path / "order").read_text() == "hook\nsignal\n"
    assert cluster.processes("deaf")
    cluster.delete("Pod", "deaf")
    cluster.wait_for_end_of("deaf", limit=60)
    assert not cluster.processes("deaf")


def test_a_pod_is_ready_when_it_answers(kubernetes_cluster: Cluster, tmp_path: Path) -> None:
    cluster = kubernetes_cluster
    serves = ["sh", "-c", "until test -e /out/go; do sleep 0.05; done; cd /out && exec python -m http.server 8000"]
    probe = {"httpGet": {"path": "/go", "port": "web"}, "periodSeconds": 1}
    container = {"readinessProbe": probe, "ports": [{"name": "web", "containerPort": 8000}]}
    mounted = {"volumeMounts": [{"name": "out", "mountPath": "/out"}]}
    out: dict[str, Any] = {"volumes": [{"name": "out", "hostPath": {"path": str(tmp_path)}}], "labels": {"serves": "web"}}
    cluster.apply(pod("web", serves, container={**container, **mounted}, **out))
    service = {"selector": {"serves": "web"}, "ports": [{"port": 8000}]}
    cluster.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "front"}, "spec": service})
    cluster.wait_for_pod("web", "Running")
    assert not cluster.get("Pod", "web")["status"]["containerStatuses"][0]["ready"]
    assert cluster.run_in("web", "getent", "hosts", "front").returncode != 0
    (tmp_path / "go").touch()
    address = cluster.wait_for_pod("web")["status"]["podIP"]
    cluster.wait_for(lambda: address in cluster.run_in("web", "getent", "hosts", "front").stdout, "the service's name")
    (tmp_path / "go").unlink()
    ready = "the pod that is not ready any more"
    cluster.wait_for(lambda: not cluster.get("Pod", "web")["status"]["containerStatuses"][0]["ready"], ready)


def test_files_of_labels_follow_them(kubernetes_cluster: Cluster) -> None:
    cluster = kubernetes_cluster
    volumes = [{"name": "about", "downwardAPI": {"items": [{"path": "role", "fieldRef": {"fieldPath": "metadata.labels['role']"}}]}}]
    mounted = {"volumeMounts": [{"name": "about", "mountPath": "/about"}]}
    cluster.apply(pod("one", SLEEPS, labels={"role": "spare"}, container=mounted, volumes=volumes))
    cluster.wait_for_pod("one")
    assert cluster.run_in("one", "cat", "/about/role").stdout == "spare"
    cluster.patch("Pod", "one", {"metadata": {"labels": {"role": "active"}}})
    cluster.wait_for(lambda: cluster.run_in("one", "cat", "/about/role").stdout == "active", "the other role")


def test_what_a_pod_needs_may_come_later(kubernetes_cluster: Cluster) -> None:
    cluster = kubernetes_cluster
    environment = [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "later", "key": "part"}}}]
    cluster.apply(pod("waits", ["sh", "-c", "echo $KEY"], container={"env": environment}, restartPolicy="Never"))
    reason = "CreateContainerConfigError"
    cluster.wait_for(lambda: reason in json.dumps(cluster.get("Pod", "waits")["status"]), reason)
    cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "later"}, "stringData": {"part": "at last"}})
    cluster.wait_for_pod("waits", "Succeeded")
    assert cluster.log("waits") == "at last\n"


def test_a_token_ends_with_its_pod(kubernetes_cluster: Cluster) -> None:
    cluster = kubernetes_cluster
    cluster.apply(pod("one", SLEEPS))
    cluster.wait_for_pod("one")
    token = cluster.run_in("one", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/token").stdout
    assert cluster.api_as(token).get("/version")["gitVersion"].startswith("v")
    with pytest.raises(Refused) as refused:
        cluster.api_as(token).get("/api/v1/nodes")
    assert refused.value.status == 403
    cluster.delete("Pod", "one", grace=0)
    cluster.wait_for(lambda: _status_for(cluster, token) == 401, "the end of the token")


def _status_for(cluster: Cluster, token: str) -> int:
    try:
        cluster.api_as(token).get("/api/v1/nodes")
    except Refused as refused:
        return refused.status
    return 200
