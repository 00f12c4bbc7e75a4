"""A Slurm cluster for tests: real Slurm (Debian's packages) with six nodes, its accounting in a real MariaDB, on this one machine.

Each node is a host in separate namespaces (`node.py`): it can be switched off, without any notice, and on again; its slurmd alone can
be killed. Nodes share the network (each has a loopback address) and the cluster's folder. Two people, alice and bob, have accounts on it.

Simpler than a real cluster: no munge (Slurm trusts any claimed identity), no cgroups, accelerators are files that no process
opens. Needs root.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.harness import ROOT
from tests.integration.processes import send, wait_until
from tests.integration.training import LONG
from tests.watchdog import marks
from understudy.common.dying import dying_with

PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "sbatch", "sacct", "mariadbd", "mariadb-install-db", "unshare", "nsenter", "setpriv")
PATH = os.pathsep.join(["/usr/local/sbin", "/usr/sbin", "/sbin", os.environ.get("PATH", os.defpath)])
NODES = tuple(f"n{number}" for number in range(1, 7))
USERS = {"root": 0, "alice": 20001, "bob": 20002}
SLURMD_TIMEOUT = 10  # seconds until Slurm takes a silent node for down; its own default is 300


def why_not() -> str:
    """Why there can be no such cluster here, or ""."""
    missing = [program for program in PROGRAMS if shutil.which(program, path=PATH) is None]
    if missing:
        return f"there is no {', no '.join(missing)} (Debian: slurmctld slurmd slurmdbd slurm-client mariadb-server)"
    if os.geteuid() != 0:
        return "a Slurm cluster of the test's own needs root"
    made = subprocess.run(["unshare", "--mount", "--pid", "--uts", "--fork", "true"], capture_output=True)
    return "" if made.returncode == 0 else "this kernel gives no namespaces here"


needs_slurm = pytest.mark.skipif(bool(why_not()), reason=why_not())


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Host:
    """One of them; off until it is switched on."""

    def __init__(self, cluster: Cluster, name: str, *daemon: str) -> None:
        self.name = name
        self._cluster = cluster
        self._daemon = daemon
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of its first process, as this machine counts."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        return int(children[0])

    def on(self) -> None:
        folder = self._cluster.folder
        shutil.rmtree(folder / "hosts" / self.name, ignore_errors=True)
        words = ["unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
        words += [sys.executable, str(Path(__file__).with_name("node.py")), self.name, str(folder), *self._daemon]
        with (folder / "log" / self.name).open("ab") as log:
            dies = dying_with(os.getpid(), signal.SIGKILL)  # with the tests, and everything on it with it
            environment = {**self._cluster.environment, **marks()}
            self._process = subprocess.Popen(words, env=environment, stdout=log, stderr=log, start_new_session=True, preexec_fn=dies)
        wait_until(lambda: self._up(), f"host {self.name}", LONG)
        self.start_daemon()

    def _up(self) -> bool:
        assert self._process is not None and self._process.poll() is None, (self._cluster.folder / "log" / self.name).read_text()
        return (self._cluster.folder / "hosts" / self.name / "up").exists()

    @property
    def is_on(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def processes(self, user: str) -> list[str]:
        """What this user runs there."""
        found = subprocess.run(self.command("root", "ps", "-u", str(USERS[user]), "-o", "pid=,args="), capture_output=True, text=True)
        return found.stdout.splitlines()

    def signal(self, user: str, words: str, number: signal.Signals) -> None:
        """To the one process of this user's there with `words` in its command line."""
        (found,) = [line.split()[0] for line in self.processes(user) if words in line]
        subprocess.run(self.command("root", "kill", f"-{number.name.removeprefix('SIG')}", found), check=True)

    def files_of_ours(self) -> list[str]:
        """In the folders in which everybody may write. (torch leaves one there, too.)"""
        words = ["find", "/tmp", "/dev/shm", "-mindepth", "1", "-maxdepth", "1", "-name", "*understudy*"]
        return subprocess.run(self.command("root", *words), capture_output=True, text=True).stdout.splitlines()

    def off(self) -> None:
        """As when the power fails."""
        if self._process is not None and self.is_on:
            with contextlib.suppress(IndexError):
                send(self.pid, signal.SIGKILL)
            self._process.wait(LONG)

    @property
    def has_daemon(self) -> bool:
        return any(line.split()[1:2] == [self._daemon[0]] for line in self.processes("root"))

    def start_daemon(self) -> None:
        if self._daemon:
            send(self.pid, signal.SIGUSR1)

    def kill_daemon(self) -> None:
        send(self.pid, signal.SIGUSR2)

    def command(self, user: str, *words: str, folder: Path | None = None, **environment: str) -> list[str]:
        """For `subprocess`: `words`, run there as this user."""
        number = str(USERS[user])
        inside = ["nsenter", "--target", str(self.pid), "--mount", "--pid", "--uts"]
        who = ["setpriv", f"--reuid={number}", f"--regid={number}", "--clear-groups"]
        variables = {**self._cluster.variables, "HOME": str(self._cluster.home(user)), "USER": user, **environment}
        there = ["sh", "-c", 'cd "$0" && exec "$@"', str(folder or self._cluster.home(user))]  # not by nsenter, which looks for it outside
        return [*inside, *who, "env", "-i", *(f"{name}={value}" for name, value in variables.items()), *there, *words]


class Cluster:
    def __init__(self, folder: Path, network: str = "", slurmd_timeout: int = SLURMD_TIMEOUT) -> None:
        """`network`: lines of topology.conf, for `topology/tree`; none: Slurm knows of no network."""
        self.folder = folder
        for name in ("log", "state", "spool", "hosts", "db", "home"):
            (folder / name).mkdir(parents=True)
        folder.chmod(0o755)
        (folder / "log").chmod(0o755)
        self.variables = {
            "PATH": f"{Path(sys.executable).parent}:{PATH}",
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "200",
            "UNDERSTUDY_DRILL": "off",
        }
        self.environment = {**self.variables, "ROOT": str(ROOT)}
        for user, number in USERS.items():
            self.home(user).mkdir()
            os.chown(self.home(user), number, number)
        lines = [f"{user}:x:{number}:{number}::{self.home(user)}:/bin/sh\n" for user, number in USERS.items()]
        (folder / "passwd").write_text("".join(lines))
        (folder / "group").write_text("".join(f"{user}:x:{number}:\n" for user, number in USERS.items()))
        self._configure(slurmd_timeout, network)
        self.nodes = {name: Host(self, name, "slurmd", "-D", "-N", name) for name in NODES}
        self.login = Host(self, "login")
        self.controller = Host(self, "ctl", "slurmctld", "-D")
        self._accounting = Host(self, "dbd", "slurmdbd", "-D")
        self._database = Host(
            self,
            "db",
            *("mariadbd", "--no-defaults", "--user=root", f"--datadir={folder}/db/data", f"--socket={folder}/db/socket"),
            *("--bind-address=127.0.0.1", f"--port={self._ports['db']}", f"--init-file={folder}/db/init.sql"),
            *("--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M", "--skip-name-resolve", "--skip-log-bin"),
        )

    def home(self, user: str) -> Path:
        return self.folder / "home" / user

    def _configure(self, slurmd_timeout: int, network: str) -> None:
        ports = iter(_free_ports(3 + len(NODES)))
        self._ports = {name: next(ports) for name in ("ctl", "dbd", "db")}
        folder = self.folder
        nodes = [
            f"NodeName={name} NodeHostname=host-{name} NodeAddr=127.0.1.{number} Port={next(ports)} CPUs=8 Boards=1 SocketsPerBoard=1 "
            f"CoresPerSocket=8 ThreadsPerCore=1 RealMemory=4000 Gres=gpu:4 Feature=big,rack{1 + (number > 3)} State=UNKNOWN"
            for number, name in enumerate(NODES, 1)
        ]
        (folder / "slurm.conf").write_text(
            f"""ClusterName=understudy
SlurmctldHost=ctl(127.0.0.1)
SlurmctldPort={self._ports["ctl"]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
FirstJobId={1 + 500 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/state/ctl.pid
SlurmdPidFile={folder}/spool/%n.pid
SlurmctldLogFile={folder}/log/slurmctld
SlurmdLogFile={folder}/log/slurmd-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={self._ports["dbd"]}
AccountingStoreFlags=job_comment
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
Licenses=app:8
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmdTimeout={slurmd_timeout}
MessageTimeout=5
KillWait=5
SlurmdParameters=config_overrides
TopologyPlugin=topology/{"tree" if network else "none"}
GresTypes=gpu
{chr(10).join(nodes)}
PartitionName=train Nodes=n[1-6] Default=YES PriorityTier=100 PreemptMode=OFF
PartitionName=brief Nodes=n[1-6] DefaultTime=30 PriorityTier=100 PreemptMode=OFF
PartitionName=scavenge Nodes=n[1-6] PriorityTier=1 PreemptMode=REQUEUE
"""
        )
        (folder / "topology.conf").write_text(network)
        (folder / "gres.conf").write_text("NodeName=n[1-6] Name=gpu File=/dev/tty[0-3]\n")
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        dbd = folder / "slurmdbd.conf"
        dbd.write_text(
            f"""AuthType=auth/none
DbdHost=dbd
DbdAddr=127.0.0.1
DbdPort={self._ports["dbd"]}
SlurmUser=root
LogFile={folder}/log/slurmdbd
PidFile={folder}/state/dbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={self._ports["db"]}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm
"""
        )
        dbd.chmod(0o600)
        (folder / "db" / "init.sql").write_text(
            "CREATE DATABASE IF NOT EXISTS slurm;\n"
            "CREATE USER IF NOT EXISTS slurm@'127.0.0.1' IDENTIFIED BY 'slurm';\n"
            "GRANT ALL ON slurm.* TO slurm@'127.0.0.1';\n"
        )

    def start(self) -> None:
        install = ["mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={self.folder}/db/data", "--skip-test-db"]
        install += ["--auth-root-authentication-method=normal"]
        subprocess.run(install, env=self.environment, check=True, capture_output=True)
        self.login.on()
        self._database.on()
        wait_until(lambda: self._listens("db"), "MariaDB", LONG)
        self._accounting.on()
        wait_until(lambda: self._listens("dbd"), "slurmdbd", LONG)
        self.run("root", "sacctmgr", "-i", "add", "cluster", "understudy")
        self.run("root", "sacctmgr", "-i", "add", "account", "people")
        for user in ("alice", "bob", "root"):
            self.run("root", "sacctmgr", "-i", "add", "user", user, "account=people")
        self.controller.on()
        for node in self.nodes.values():
            node.on()
        self.wait_for_nodes(*NODES, state="idle")

    def _listens(self, which: str) -> bool:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self._ports[which]), timeout=1).close()
            return True
        return False

    def stop(self) -> None:
        for host in (*self.nodes.values(), self.controller, self._accounting, self._database, self.login):
            host.off()

    def begin(self) -> None:
        """Prepare for the next test: everything is on, no job runs, homes are empty."""
        for user in ("alice", "bob"):
            for path in self.home(user).iterdir():
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        self.wait_for_nodes(*NODES, state="idle")

    def end(self) -> None:
        """End the jobs of a test, and repair the cluster."""
        if not self.controller.is_on:
            self.controller.on()
        for name, node in self.nodes.items():
            if not node.is_on:
                node.on()
            elif not node.has_daemon:
                node.start_daemon()
            self.attempt("root", "scontrol", "update", f"NodeName={name}", "State=RESUME")
        for user in ("alice", "bob"):
            self.attempt("root", "scancel", f"--user={user}")
        wait_until(lambda: not self.run("root", "squeue", "--noheader").strip(), "an empty queue", LONG)
        self.wait_for_nodes(*NODES, state="idle")

    # What people do.

    def run(self, user: str, *words: str, folder: Path | None = None, **environment: str) -> str:
        """Run a command on the login node and return its output; it must succeed."""
        done = self.attempt(user, *words, folder=folder, **environment)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def attempt(self, user: str, *words: str, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        command = self.login.command(user, *words, folder=folder, **environment)
        return subprocess.run(command, capture_output=True, text=True, timeout=LONG)

    def states(self) -> dict[str, str]:
        """Of every node, as `sinfo` has it, without its flags."""
        lines = self.run("root", "sinfo", "--noheader", "--Node", "--partition=train", "--format=%N %T").splitlines()
        return dict(line.split() for line in lines)

    def wait_for_nodes(self, *names: str, state: str) -> None:
        def there() -> bool:
            found = self.states()
            return all(found.get(name) == state for name in names)

        wait_until(there, f"{', '.join(names)} {state}", LONG)


@contextlib.contextmanager
def cluster(folder: Path, network: str = "", slurmd_timeout: int = SLURMD_TIMEOUT) -> Iterator[Cluster]:
    made = Cluster(folder, network, slurmd_timeout)
    try:
        made.start()
        yield made
    except BaseException:
        for log in sorted((folder / "log").iterdir()):
            print(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}")
        raise
    finally:
        made.stop()
