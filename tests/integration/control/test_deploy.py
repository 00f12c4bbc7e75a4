"""The files in `deploy/`: systemd takes the units, their command lines serve, the alerts speak of metrics that exist."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.processes import marked, wait_until
from tests.integration.service import Service
from tests.integration.training import LONG

from understudy.common.names import JOURNAL
from understudy.orchestrator import journal

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
UNDERSTUDY = "/opt/understudy/bin/understudy"


def command(unit: Path) -> list[str]:
    """Return the arguments of the unit's program."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(unit.read_text())
    program, *words = shlex.split(parser["Service"]["ExecStart"])
    assert program == UNDERSTUDY
    return words


def test_the_units_start_a_service(tmp_path: Path) -> None:
    """The very command lines of the units, with their variables set as in docs/operate/access.md; and a back-up while it runs."""
    secret = tmp_path / "secret"
    secret.write_text("a secret of sufficient length\n")
    (tmp_path / "token").write_text(secret.read_text())
    values = {"STATE_DIRECTORY": str(tmp_path / "orchestrator"), "CREDENTIALS_DIRECTORY": str(tmp_path), "LISTEN": "127.0.0.1:0"}
    for name in ("orchestrator", "agent"):
        words = command(DEPLOY / "systemd" / f"understudy-{name}.service")
        named = {match for word in words for match in re.findall(r"\$\{(\w+)\}", word)}
        set_by_systemd = {"STATE_DIRECTORY", "CREDENTIALS_DIRECTORY"}
        page = (DEPLOY.parent / "docs" / "operate" / "access.md").read_text()
        assert all(f"{variable}=" in page for variable in named - set_by_systemd)
    with marked() as mark:
        service = Service(tmp_path, mark, UNDERSTUDY_TOKEN=secret.read_text().strip())
        service.kill_orchestrator()

        def filled(name: str, **more: str) -> list[str]:
            words = command(DEPLOY / "systemd" / f"understudy-{name}.service")
            return [re.sub(r"\$\{(\w+)\}", lambda match: {**values, **more}[match[1]], word) for word in words]

        service.start_orchestrator(filled("orchestrator"))
        place = str(tmp_path / "agent")
        service.start_agent_by("unit", filled("agent", ORCHESTRATOR=service.url, SLOTS="3", FAILURE_DOMAIN="rack3", STATE_DIRECTORY=place))
        service.wait_for_nodes(1)
        assert [(node["slots"], node["domain"]) for node in service.ask("nodes")] == [(3, "rack3")]

        job = service.run("waiting", ["--nnodes", "5", "--detach"], "spread.py")
        assert job.process.wait(LONG) == 0, job.output
        kept = tmp_path / "orchestrator" / JOURNAL
        wait_until(lambda: "waiting" in journal.read_all(kept), "the journal has the job", LONG)
        backup = tmp_path / "backup.db"
        with sqlite3.connect(kept) as connection:
            connection.execute(f"VACUUM INTO '{backup}'")
        assert journal.read_all(backup) == journal.read_all(kept)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_the_units(unit: Path, tmp_path: Path) -> None:
    """It looks for the program, so its path is put in."""
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace(UNDERSTUDY, str(Path(sys.executable).with_name("understudy"))))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True, timeout=LONG)
    ours = [line for line in done.stderr.splitlines() if unit.name in line or unit.stem in line]
    assert not ours, done.stderr


def test_alerts_are_about_metrics_that_exist_and_are_described() -> None:
    source = (DEPLOY.parent / "src" / "understudy" / "orchestrator" / "metrics.py").read_text()
    made = {name + "_total" * (kind == "Counter") for kind, name in re.findall(r"(Gauge|Counter)MetricFamily\(\s*\"(\w+)\"", source)}
    text = ALERTS.read_text()
    expressions = re.findall(r"expr: (.*)", text)
    assert set(re.findall(r"understudy_\w+", " ".join(expressions))) <= made
    alerts = set(re.findall(r"alert: (\w+)", text))
    page = (DEPLOY.parent / "docs" / "operate" / "watch.md").read_text()
    assert alerts == set(re.findall(r"^\| `(Understudy\w+)` \|", page, re.MULTILINE))
    assert len(alerts) == len(expressions)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_takes_the_alerts() -> None:
    done = subprocess.run(["promtool", "check", "rules", str(ALERTS)], capture_output=True, text=True, timeout=LONG)
    assert done.returncode == 0, done.stdout + done.stderr
