"""The choice of a node's detectors: the file, its mistakes, the list, and rules about metrics seen from one node."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from tests.detectors.prometheus_fake import NOW, Fake, serving
from tests.message_texts import has, refused
from typer.testing import CliRunner, Result

import understudy.cli
from understudy import extensions
from understudy.agent.config import AgentConfig
from understudy.agent.node import NodeConfig
from understudy.cli import serve_command
from understudy.cli.flags import Flags
from understudy.cli.launch import Usage, launch
from understudy.detectors import amdsmi, choice
from understudy.detectors.base import GROUP, AnyDetector, Detector, Evidence, JobView, NodeDetector, Severity, Subject
from understudy.detectors.choice import AmdSmiSettings, BadFile, NvmlSettings, choose, read_file
from understudy.detectors.command import Command
from understudy.detectors.configuration import read
from understudy.detectors.device_watch import Rate
from understudy.detectors.kernel import Kernel
from understudy.detectors.nccl_ras import NcclRas
from understudy.detectors.nvml_limits import DEFAULT
from understudy.detectors.prometheus_here import PrometheusHere, Rules
from understudy.messages import detector_files, node_programs, prometheus, tools
from understudy.messages.base import Message

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operate" / "detectors-and-policy.md"
CHECK = '[[command]]\nname = "{}"\nargv = ["/bin/sh", "-c", "{}"]\n'
RULES = """
[[prometheus]]
name = "dcgm"
exporters = [{{url = "{}"}}]
[[prometheus.rules]]
name = "hot"
sample = "temperature"
compare = ">"
number = 90
kind = "too-hot"
"""


class Fan(NodeDetector):
    name, every = "fan", 7.0

    def look(self) -> list[Evidence]:
        return []


class Elsewhere(Detector):
    name = "elsewhere"

    def look(self, job: JobView) -> list[Evidence]:
        return []


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Detectors as if other packages had them."""

    def install(*kinds: type[AnyDetector]) -> None:
        entries = tuple(EntryPoint(kind.name, f"fans:{kind.__name__}", GROUP) for kind in kinds)
        monkeypatch.setattr(extensions, "entries", lambda group: entries)
        monkeypatch.setattr(extensions, "classes", lambda group, base: list(kinds))

    return install


def detectors(*words: str) -> Result:
    return CliRunner().invoke(understudy.cli.app, ["detectors", *words], env={"COLUMNS": "200"})


def test_without_a_file_what_is_built_in_and_installed_looks(installed: Callable[..., None]) -> None:
    installed(Fan, Elsewhere)
    assert [(one.name, one.origin, one.off) for one in choose()] == [
        ("kernel", "built in", False),
        ("nvml", "built in", False),
        ("amdsmi", "built in", False),
        ("fan", "fans:Fan", False),
    ]


def test_the_example_of_the_documentation_can_be_used(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```toml\n(off = .*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "detectors.toml").write_text(example)
    text = read_file(tmp_path / "detectors.toml")
    made = {one.name: one for one in choose(text, names=["n0"], since=NOW)}
    assert list(made) == ["kernel", "nvml", "amdsmi", "nccl-ras", "network", "command:disk", "command:fabric", "prometheus:dcgm"]
    assert not any(one.off for one in made.values())
    assert isinstance(made["command:fabric"].make(), Command) and isinstance(made["prometheus:dcgm"].make(), PrometheusHere)
    for commented in re.findall(r"^# (server = .*\}),", example, re.MULTILINE):
        choose(example.replace("exporters = [", f"{commented}\nexporters = ["))


def test_the_limits_that_the_documentation_shows_are_those_that_hold_without_it() -> None:
    (example,) = re.findall(r"^```toml\n(off = .*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert read(NvmlSettings, tomllib.loads(example)["nvml"]).limits() == DEFAULT
    given = read(NvmlSettings, {"pcie_replays": {"count": 1, "seconds": 2}, "slowdown": 3}).limits()
    assert (given.pcie_replays, given.slowdown, given.nvlink_crc) == (Rate(1, 2.0), 3.0, DEFAULT.nvlink_crc)
    assert read(AmdSmiSettings, tomllib.loads(example)["amdsmi"]).limits() == amdsmi.DEFAULT
    amd = read(AmdSmiSettings, {"corrected_ecc": {"count": 1, "seconds": 2}, "throttled": 0.5}).limits()
    assert (amd.corrected_ecc, amd.throttled, amd.slowdown) == (Rate(1, 2.0), 0.5, amdsmi.DEFAULT.slowdown)


def test_nccl_is_queried_only_where_the_file_asks_for_it() -> None:
    assert "nccl-ras" not in [one.name for one in choose()]
    (asked,) = (one for one in choose('[nccl-ras]\nevery = 5\naddress = "n:1"', "d.toml") if one.name == "nccl-ras")
    made = asked.make()
    assert isinstance(made, NcclRas) and (made._address, asked.every, asked.origin) == ("n:1", 5.0, "d.toml")
    assert choose('off = ["nccl-ras"]\n[nccl-ras]')[-1].off


def test_disabled_detectors_are_not_created_and_the_log_counts_as_configured(installed: Callable[..., None]) -> None:
    installed(Fan)
    made = {one.name: one for one in choose('off = ["nvml", "fan"]', since=NOW)}
    assert [name for name, one in made.items() if one.off] == ["nvml", "fan"]
    kernel = made["kernel"].make()
    assert isinstance(kernel, Kernel) and kernel._since == NOW
    kernel = choose("[kernel]\nhistory = true", since=NOW)[0].make()
    assert isinstance(kernel, Kernel) and kernel._since == 0.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("off = [", [("", detector_files.NOT_TOML, {"path": "d.toml"})]),
        ('of = ["kernel"]', [("d.toml: ", detector_files.UNKNOWN_SETTING, {"name": "of"})]),
        (
            'off = ["kernl", "nvml", "fan"]',
            [
                ("", detector_files.NO_SUCH_DETECTOR, {"path": "d.toml", "name": name, "known": "kernel, nvml, amdsmi"})
                for name in ("fan", "kernl")
            ],
        ),
        ("[kernel]\nhistory = 3", [("d.toml: ", detector_files.BAD_SETTING, {"place": "kernel.history: "})]),
        ("[nvml]\nslowdown = -1", [("d.toml: ", detector_files.BAD_SETTING, {"place": "nvml.slowdown: "})]),
        ("[amdsmi]\nthrottled = 1.5", [("d.toml: ", detector_files.BAD_SETTING, {"place": "amdsmi.throttled: "})]),
        ("[nccl-ras]\naddress = 5", [("d.toml: ", detector_files.BAD_SETTING, {"place": "nccl-ras.address: "})]),
        ("[nvml]\nevents = 5", [("d.toml: ", detector_files.UNKNOWN_SETTING, {"name": "nvml.events"})]),
        ("[nvml.pcie_replays]\ncount = 5", [("d.toml: ", detector_files.MISSING_SETTING, {"name": "nvml.pcie_replays.seconds"})]),
        ('[command]\nname = "disk"', [("d.toml: command: ", detector_files.NOT_SEVERAL, {})]),
        ('[[command]]\nname = "disk"\nargv = ["df"]', [("d.toml: command 1 (disk): argv: ", node_programs.RELATIVE_PATH, {})]),
        ('[[command]]\nargv = ["/df"]\n', [("d.toml: command 1: ", detector_files.MISSING_SETTING, {"name": "name"})]),
        (
            '[[command]]\nname = "a\\u001bb"\nargv = ["/df"]\n',
            [("d.toml: command 1 (a\\x1bb): ", detector_files.BAD_SETTING, {"place": "name: "})],
        ),
        (CHECK.format("a", "") * 2, [("d.toml: command 2 (a): ", detector_files.TWO_ENTRIES, {})]),
        (
            CHECK.format("a", "") + CHECK.format("b", "") + "limit = 0\nevry = 1",
            [
                ("d.toml: command 2 (b): ", detector_files.BAD_SETTING, {"place": "limit: "}),
                ("d.toml: command 2 (b): ", detector_files.UNKNOWN_SETTING, {"name": "evry"}),
            ],
        ),
        (CHECK.format("a", "") * 65, [("d.toml: ", detector_files.BAD_SETTING, {"place": "command: "})]),
        (RULES.format("ftp://a"), [("d.toml: prometheus 1 (dcgm): exporters.0.url: ", prometheus.URL_WITHOUT_SCHEME, {})]),
        (
            RULES.format("http://a") + "nam = 1",
            [("d.toml: prometheus 1 (dcgm): ", detector_files.UNKNOWN_SETTING, {"name": "rules.0.nam"})],
        ),
    ],
    ids=range(18),
)
def test_a_mistake_is_reported_with_its_place(
    text: str, expected: list[tuple[str, Message, dict[str, object]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("d.toml").write_text(text)
    with pytest.raises(BadFile) as error:
        read_file(Path("d.toml"))
    lines = str(error.value).splitlines()
    for line, (place, message, arguments) in zip(lines, expected, strict=True):
        assert line.startswith(f"{place}{message.code}: ") and has(line, message, **arguments), line
    shown = detectors("d.toml")
    assert shown.exit_code == 2 and all(f"understudy: {line}" in shown.output for line in lines)
    (tmp_path / "train.py").touch()
    with pytest.raises(Usage, match=re.escape(lines[0])):
        launch(Flags(["train.py"], detectors=Path("d.toml")), "job")
    agent = CliRunner().invoke(understudy.cli.app, ["agent", "--orchestrator", "http://127.0.0.1:1", "--detectors", "d.toml"])
    assert agent.exit_code == 2 and lines[0] in agent.output


def test_a_file_that_cannot_be_read_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with refused(BadFile, detector_files.UNREADABLE_FILE, path=tmp_path / "none.toml", reason=os.strerror(errno.ENOENT)):
        read_file(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    with refused(BadFile, detector_files.UNREADABLE_FILE, path=tmp_path / "bytes.toml"):
        read_file(tmp_path / "bytes.toml")
    monkeypatch.setattr(choice, "LONGEST", 3)
    (tmp_path / "long.toml").write_text("# ab")
    with refused(BadFile, detector_files.LONG_FILE, path=tmp_path / "long.toml", most=3):
        read_file(tmp_path / "long.toml")


def test_another_package_s_detector_does_not_take_the_place_of_another_one(installed: Callable[..., None]) -> None:
    installed(type("Kernel2", (Fan,), {"name": "kernel"}))
    with refused(ValueError, detector_files.NAME_TAKEN, name="kernel", origin="fans:Kernel2"):
        choose()
    assert has(detectors().output, detector_files.NAME_TAKEN, name="kernel", origin="fans:Kernel2")
    installed(type("Disk", (Fan,), {"name": "command:a"}))
    with refused(ValueError, detector_files.NAME_TAKEN, name="command:a", origin="fans:Disk"):
        choose(CHECK.format("a", ""))


def test_the_text_goes_to_the_agent(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    file = tmp_path / "d.toml"
    file.write_text('off = ["kernel"]')
    flags = Flags([str(tmp_path / "train.py")], detectors=file)
    assert launch(flags, "job").detectors == 'off = ["kernel"]'
    with pytest.raises(Usage, match="understudy agent --detectors"):
        launch(flags, "job", submitted=True)
    config = AgentConfig("job", tmp_path, "n0", 0, "h", ("train.py",), 1, detectors="off = []", began=3.0, looks=False)
    config.write(tmp_path / "agent.json")
    assert AgentConfig.read(tmp_path / "agent.json") == config


def test_the_text_goes_to_the_node_s_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configs: list[NodeConfig] = []

    async def serve(config: NodeConfig, token: str) -> int:
        configs.append(config)
        return 0

    monkeypatch.setattr(serve_command, "_serve", serve)
    (tmp_path / "d.toml").write_text('off = ["kernel"]')
    words = ["agent", "--orchestrator", "http://127.0.0.1:1", "--detectors", str(tmp_path / "d.toml")]
    assert CliRunner().invoke(understudy.cli.app, words).exit_code == 0
    assert [config.detectors for config in configs] == ['off = ["kernel"]']


# -- understudy detectors ---------------------------------------------------------------------------------------------


def test_what_looks_is_listed(tmp_path: Path) -> None:
    file = tmp_path / "d.toml"
    file.write_text('off = ["kernel"]\n' + CHECK.format("disk", "exit 1"))
    listed = {row["name"]: row for row in json.loads(detectors(str(file), "--json").stdout)}
    assert listed["kernel"]["why_not"] == tools.DETECTOR_OFF() and not listed["kernel"]["looks"]
    assert listed["command:disk"] == {
        "name": "command:disk",
        "looks": True,
        "why_not": "",
        "every": 60.0,
        "origin": str(file),
        "found": [],
    }
    table = detectors(str(file)).stdout
    assert has(table, tools.DETECTOR_OFF) and "every 60 s" in table and "exit 1" not in table


@pytest.mark.parametrize(
    ("script", "code", "expected"),
    [
        ("echo full; exit 1", 1, f"suspect: {node_programs.FAILED(check='disk', printed=': full')} (command:disk, check-failed)"),
        ("exit 0", 0, tools.NOTHING_FOUND()),
        ("exit 3", 0, f"note: {node_programs.BAD_EXIT(check='disk', exit_code=3, printed='')} (command:disk, check-exit)"),
    ],
    ids=["suspect", "nothing", "note"],
)
def test_once_shows_what_each_finds(script: str, code: int, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "d.toml"
    file.write_text('off = ["kernel", "nvml"]\n' + CHECK.format("disk", script))
    found = detectors("--once", str(file))
    assert found.exit_code == code
    assert expected in found.stdout


def test_once_shows_what_is_wrong_with_one_that_raises_or_floods(installed: Callable[..., None], tmp_path: Path) -> None:
    hot = Evidence("many", Subject.NODE, "", Severity.SUSPECT, "hot", NOW)
    installed(
        type("Raises", (Fan,), {"name": "raises", "look": lambda self: 1 / 0}),
        type("Floods", (Fan,), {"name": "floods", "look": lambda self: iter(lambda: hot, None)}),
    )
    (tmp_path / "d.toml").write_text('off = ["kernel", "nvml"]')
    found = detectors("--once", "--json", str(tmp_path / "d.toml"))
    assert found.exit_code == 0
    listed = {row["name"]: row for row in json.loads(found.stdout)}
    assert listed["raises"]["why_not"] == "ZeroDivisionError: division by zero"
    assert [one["kind"] for one in listed["floods"]["found"]] == ["detector-left-out"]


def test_the_example_of_the_help_can_be_used(tmp_path: Path) -> None:
    lines = [line.strip() for line in detectors("--help").stdout.splitlines()]
    first, last = lines.index('off = ["nvml"]  # disabled'), lines.index("every = 60  # seconds")
    (tmp_path / "d.toml").write_text("\n".join(lines[first : last + 1]))
    assert [one.name for one in choose(read_file(tmp_path / "d.toml"))][-1] == "command:disk"


# -- rules about metrics, from a node ---------------------------------------------------------------------------------


def here(fake: Fake, *names: str, **more: object) -> PrometheusHere:
    rule = {"name": "hot", "sample": "temperature", "compare": ">", "number": 90, "kind": "too-hot", "severity": "suspect", **more}
    return PrometheusHere(read(Rules, {"name": "dcgm", "exporters": [{"url": fake.url}], "rules": [rule]}), names, lambda: NOW)


def test_a_page_without_an_owner_is_this_node_s() -> None:
    with serving(Fake()) as fake:
        fake.body = b'temperature{Hostname="another"} 95\n'
        (found,) = here(fake, "n0").look()
    assert (found.detector, found.name, found.kind, found.severity) == ("prometheus:dcgm", "", "too-hot", Severity.SUSPECT)


def test_an_answer_about_another_node_is_left_out() -> None:
    with serving(Fake()) as fake:
        fake.vector(({"instance": "n1:9100"}, "95"), ({"instance": "host0:9100"}, "96"))
        rule = {"name": "hot", "query": "temperature", "compare": ">", "number": 90, "kind": "too-hot"}
        rules = read(Rules, {"name": "dcgm", "server": {"url": fake.url}, "rules": [rule]})
        (found,) = PrometheusHere(rules, ["n0", "host0"], lambda: NOW).look()
    assert found.name == "" and "96" in found.detail


def test_a_look_may_take_as_long_as_its_requests() -> None:
    rule = {"name": "hot", "sample": "temperature", "compare": ">", "number": 90, "kind": "too-hot"}
    pages = [{"url": f"http://h{number}:1", "limit": 20} for number in range(17)]
    assert PrometheusHere(read(Rules, {"name": "many", "exporters": pages, "rules": [rule]}), ["n0"]).limit >= 40


def test_an_agent_without_such_rules_does_without_an_http_client() -> None:
    code = "import sys, understudy.agent.service, understudy.agent.node; assert 'httpx' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
