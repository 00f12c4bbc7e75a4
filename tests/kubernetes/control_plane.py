"""A real control plane of Kubernetes for tests: etcd, kube-apiserver, kube-scheduler and kube-controller-manager, each of which can be
killed and restarted, on the same address and data.

They run in the switch's network (`network.py`), which only they use, so their ports are the usual ones. RBAC is on. Service accounts
have tokens as they do in reality: bound ones, from the TokenRequest API, which the server puts into every pod as a projected volume.

Simpler than in reality: kubelets, scheduler and controllers have the administrator's rights (there is no Node authorizer), etcd runs
without TLS and does not sync to disk, there is one of each. Times are shorter: a silent node is unreachable after `NODE_GRACE` seconds.

The binaries are those of the folder in `KUBEBUILDER_ASSETS`, where they may be packed (.xz: they are unpacked into `build`), or those on
PATH.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import http.client
import ipaddress
import json
import lzma
import os
import re
import shutil
import signal
import ssl
import subprocess
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from tests.faults.harness import ROOT
from tests.integration.processes import wait_until
from tests.kubernetes.network import TOOLS, Switch
from understudy.common.dying import dying_with

UNPACKED = ROOT / "build" / "kubernetes"
BINARIES = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager")
PORT = 6443
NODE_GRACE = 8  # seconds until a node that does not renew its lease is unreachable; Kubernetes' own default is 40
TOKEN = "administrator"
LIMIT = 120.0


def _found(binary: str) -> Path | None:
    """Packed ones as they are."""
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    places = [Path(folder) / binary, Path(folder) / f"{binary}.xz"] if folder else []
    on_path = shutil.which(binary)
    places += [Path(on_path)] if on_path else []
    return next((place for place in places if place.exists()), None)


def why_not() -> str:
    """Why there can be no such cluster here, or ""."""
    if missing := [binary for binary in BINARIES if _found(binary) is None]:
        return f"there is no {', no '.join(missing)} in the folder KUBEBUILDER_ASSETS or on PATH (Debian has etcd: etcd-server)"
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"there is no {', no '.join(missing)} (Debian: iproute2, util-linux)"
    if os.geteuid() != 0:
        return "a Kubernetes cluster of the test's own needs root"
    # The needs of a node and its containers: namespaces, and a file system with a writable layer.
    script = "cd /mnt && mount -t tmpfs none . && cd /mnt && mkdir u w r && mount -t overlay none -o lowerdir=/usr,upperdir=u,workdir=w r"
    words = ["unshare", "--mount", "--pid", "--uts", "--ipc", "--net", "--propagation", "private", "--fork", "sh", "-c", script]
    made = subprocess.run(words, capture_output=True, text=True)
    return "" if made.returncode == 0 else f"this kernel gives no namespaces with an overlay here: {made.stderr.strip()}"


def why_no_resources() -> str:
    """Why this API server cannot have resources of ours, or "". One that is built with Go 1.18 or newer and the libraries of Kubernetes
    1.20 dies of the first one: before 1.0.2, github.com/modern-go/reflect2 does not know how newer ones go through a map.
    """
    program = ControlPlane.unpacked("kube-apiserver").read_bytes()
    new = re.search(rb"\bgo1\.(1[89]|[2-9][0-9])\b", program) is not None
    if new and b"modern-go/reflect2" in program and b"go_above_118.go" not in program:
        return "this kube-apiserver dies of custom resources: it was built with a Go that its libraries do not know (reflect2 before 1.0.2)"
    return ""


class Daemon:
    """One program of the control plane."""

    def __init__(self, name: str, switch: Switch, log: Path, command: list[str]) -> None:
        self.name = name
        self._command = switch.inside(*command)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_on(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        if not self.is_on:
            with self._log.open("ab") as log:
                dies = dying_with(os.getpid(), signal.SIGKILL)
                self._process = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True, preexec_fn=dies)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class ControlPlane:
    def __init__(self, folder: Path, switch: Switch) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.address = switch.addresses.servers
        self.server = f"https://{self.address}:{PORT}"
        self._certificates()
        (folder / "tokens.csv").write_text(f'{TOKEN},administrator,1,"system:masters"\n')
        self.kubeconfig = self._kubeconfig(TOKEN)
        programs = {binary: self.unpacked(binary) for binary in BINARIES}

        def daemon(name: str, *flags: str) -> Daemon:
            return Daemon(name, switch, folder / f"{name}.log", [str(programs[name]), *flags])

        self._etcd = daemon(
            "etcd",
            f"--data-dir={folder / 'etcd'}",
            "--listen-client-urls=http://127.0.0.1:2379",
            "--advertise-client-urls=http://127.0.0.1:2379",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--initial-advertise-peer-urls=http://127.0.0.1:2380",
            "--initial-cluster=default=http://127.0.0.1:2380",
            "--unsafe-no-fsync",
        )
        features = "APIPriorityAndFairness=false,BoundServiceAccountTokenVolume=true"
        self.apiserver = daemon(
            "kube-apiserver",
            "--etcd-servers=http://127.0.0.1:2379",
            f"--bind-address={self.address}",
            f"--advertise-address={self.address}",
            f"--secure-port={PORT}",
            f"--tls-cert-file={folder / 'server.crt'}",
            f"--tls-private-key-file={folder / 'server.key'}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--authorization-mode=RBAC",
            f"--token-auth-file={folder / 'tokens.csv'}",
            f"--service-account-key-file={folder / 'accounts.key'}",
            f"--service-account-signing-key-file={folder / 'accounts.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--endpoint-reconciler-type=none",
            f"--feature-gates={features}",
            "--max-requests-inflight=0",
        )
        client = [f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--secure-port=0", "--address=127.0.0.1"]
        self.scheduler = daemon("kube-scheduler", *client, "--port=10251")
        self.controllers = daemon(
            "kube-controller-manager",
            *client,
            "--port=10252",
            "--controllers=*,-nodeipam,-attachdetach,-persistentvolume-binder,-persistentvolume-expander,-ttl,-endpointslice,-endpointslicemirroring",
            f"--service-account-private-key-file={folder / 'accounts.key'}",
            f"--root-ca-file={folder / 'ca.crt'}",
            f"--feature-gates={features}",
            f"--node-monitor-grace-period={NODE_GRACE}s",
            "--node-monitor-period=1s",
            "--concurrent-gc-syncs=2",
        )

    @property
    def daemons(self) -> tuple[Daemon, ...]:
        return (self._etcd, self.apiserver, self.scheduler, self.controllers)

    def start(self) -> None:
        """Whatever of it does not run, in an order in which each finds the other. A started API server answers when this returns."""
        self._etcd.start()
        self.apiserver.start()
        wait_until(self._answers, "the API server", LIMIT)
        self.scheduler.start()
        self.controllers.start()

    def stop(self) -> None:
        for daemon in reversed(self.daemons):
            daemon.kill()

    def _answers(self) -> bool:
        assert self.apiserver.is_on and self._etcd.is_on, (self.folder / "kube-apiserver.log").read_text()[-3000:]
        context = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        connection = http.client.HTTPSConnection(self.address, PORT, timeout=5, context=context)
        with contextlib.suppress(OSError), contextlib.closing(connection):
            connection.request("GET", "/readyz", headers={"Authorization": f"Bearer {TOKEN}"})
            return connection.getresponse().status == 200
        return False

    @staticmethod
    def unpacked(binary: str) -> Path:
        found = _found(binary)
        assert found is not None
        if found.suffix != ".xz":
            return found
        place = UNPACKED / binary
        if not place.exists() or place.stat().st_mtime < found.stat().st_mtime:
            UNPACKED.mkdir(parents=True, exist_ok=True)
            new = UNPACKED / f"{binary}.{os.getpid()}"
            with lzma.open(found) as packed, new.open("wb") as file:
                shutil.copyfileobj(packed, file)
            new.chmod(0o755)
            new.replace(place)  # others may start a cluster, too
        return place

    def _kubeconfig(self, token: str) -> Path:
        """JSON is YAML, too."""
        authority = base64.b64encode((self.folder / "ca.crt").read_bytes()).decode()
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": {"server": self.server, "certificate-authority-data": authority}}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "user"}}],
            "current-context": "tests",
        }
        path = self.folder / "kubeconfig"
        path.write_text(json.dumps(content))
        return path

    def _certificates(self) -> None:
        """An authority, the server's certificate, and the key with which tokens of service accounts are signed."""
        now = datetime.datetime.now(datetime.UTC)
        authority, server = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of the tests")])

        def certificate(name: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
            made = x509.CertificateBuilder().subject_name(name).issuer_name(issuer).public_key(key)
            made = made.serial_number(x509.random_serial_number())
            return made.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + datetime.timedelta(days=2))

        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        root = certificate(issuer, authority.public_key()).add_extension(x509.BasicConstraints(True, None), critical=True)
        root = root.add_extension(usage, critical=True)
        root = root.add_extension(x509.SubjectKeyIdentifier.from_public_key(authority.public_key()), critical=False)
        names = [x509.IPAddress(ipaddress.ip_address(self.address)), x509.DNSName("kubernetes.default.svc")]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
        served = certificate(subject, server.public_key()).add_extension(x509.SubjectAlternativeName(names), critical=False)
        served = served.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
        pem = serialization.Encoding.PEM
        (self.folder / "ca.crt").write_bytes(root.sign(authority, hashes.SHA256()).public_bytes(pem))
        (self.folder / "server.crt").write_bytes(served.sign(authority, hashes.SHA256()).public_bytes(pem))
        plain = (pem, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
        (self.folder / "server.key").write_bytes(server.private_bytes(*plain))
        accounts = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        (self.folder / "accounts.key").write_bytes(accounts.private_bytes(*plain))
