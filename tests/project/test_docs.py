"""The documentation against the code: links, options, names, code blocks, variables, dependencies.

Whatever is cheap to check is checked, so that a renamed option or key is noticed by the page that still has its old name.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, cast

import pytest
import typer
from fastapi.routing import APIRoute
from scripts.reference.http_interface import describe, requests
from scripts.reference.metrics import metrics, name_of, rail_metrics
from tests.message_texts import begins, codes, has
from tests.pages import FENCE, PAGES, README, ROOT, anchors, blocks, commands, prose, quickstart_commands, script_for_torchrun

import understudy
from understudy.chaos.plan import make
from understudy.chaos.registry import registry
from understudy.chaos.schedule import schedule
from understudy.cli import app
from understudy.common.phases import PHASES
from understudy.messages.registry import registry as messages
from understudy.orchestrator import views
from understudy.orchestrator.api import create_app
from understudy.orchestrator.cluster import Cluster
from understudy.orchestrator.jobs import Jobs
from understudy.orchestrator.security import Access
from understudy.policy.rules import parse as policy

OURS = [page for page in PAGES if page.name not in ("benchmarks.md", "gpu.md")]  # those two speak of other programs' options
REFERENCE = ROOT / "docs" / "reference"
EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
OUR_PAGES = pytest.mark.parametrize("page", OURS, ids=lambda page: page.name)

INLINE = re.compile(r"`([^`\n]+)`")
OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")


def options() -> dict[str, set[str]]:
    """Command -> its options, both names of each."""
    group = typer.main.get_command(app)
    commands = getattr(group, "commands")  # noqa: B009  # typer brings its own click, whose types are not ours to import
    return {name: _options_of(command) | {"--help"} for name, command in commands.items()}


def _options_of(command: Any) -> set[str]:
    """Those of a group are its commands' together."""
    return {option for p in command.params for option in p.opts}.union(*map(_options_of, getattr(command, "commands", {}).values()))


def uses(page: Path) -> list[tuple[str, list[str]]]:
    """Every `understudy COMMAND ...` in code: the command, and its own options, not those of the script after it."""
    code = [*INLINE.findall(prose(page)), *(line for kind in ("sh", "bash") for block in blocks(page, kind) for line in block.splitlines())]
    found = []
    for line in code:
        for command, rest in re.findall(r"(?:^|\s)understudy (\w[\w-]*)([^#]*)", line):
            own = re.sub(r"=\S+", "", re.split(r"\s\S*\.py\b|\s-m\s", rest, maxsplit=1)[0])  # not --floating-option=--qos=urgent
            found.append((command, OPTION.findall(own)))
    return found


@EVERY_PAGE
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target, _, anchor in (link.partition("#") for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)) if "://" not in link):
        file = page.parent / target if target else page
        assert file.exists(), f"{page.name} links to {target}, which does not exist"
        assert not anchor or anchor in anchors(file), f"{page.name} links to {target}#{anchor}, but {file.name} has no such heading"


def test_links_and_paths_of_the_sources_exist() -> None:
    """Docstrings, help and messages that name a page. Those of the HTTP interface are links of docs/reference/http.md."""
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "scripts").rglob("*"), *(ROOT / "deploy").rglob("*"), ROOT / "Makefile"]:
        for name in re.findall(r"\bdocs/[\w/]+\.md\b", path.read_text() if path.is_file() and path.suffix != ".pyc" else ""):
            assert (ROOT / name).exists(), f"{path} names {name}"


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 130, "move details to docs/: the README is for the first five minutes"


def test_ci_runs_the_test_command_of_the_readme() -> None:
    assert "`make test`" in README.read_text()
    assert "make test" in (ROOT / ".ci" / "run").read_text().splitlines()


def test_the_diff_of_the_readme_leads_to_the_script_of_the_quickstart() -> None:
    """`tests/integration/control/test_quickstart.py` runs both sides."""
    script = script_for_torchrun()
    assert "understudy" not in script and "job" not in script and "init_process_group()" in script
    ast.parse(script)


@EVERY_PAGE
def test_codes_of_messages_exist(page: Path) -> None:
    assert set(codes(page.read_text())) <= messages().keys()


def test_the_pages_about_scripts_quote_messages_as_they_are() -> None:
    """Whole ones in blocks without a language, and their beginnings in code that begins with a code and a colon."""
    pages = sorted((ROOT / "docs" / "script").glob("*.md"))
    whole = [(page, line) for page in pages for block in blocks(page, "") for line in block.splitlines()]
    beginnings = [(page, text) for page in pages for text in INLINE.findall(prose(page)) if re.match(r"US\d{4}:", text)]
    assert len(whole) >= 2 and len(beginnings) > 50
    for page, line in whole:
        (code, *_) = codes(line) or ("none",)
        assert code in messages() and has(line, messages()[code]), f"{page} has a line that is no message: {line}"
    for page, text in beginnings:
        assert text[:6] in messages() and begins(text, messages()[text[:6]]), f"{page} has what no message begins with: {text}"


def test_beginnings_of_messages_that_are_not_one_are_found() -> None:
    message = messages()["US4571"]
    assert begins("US4571: rank 1: train_step issues 1 collectives after its vote", message)
    assert begins("US4571: rank 1: train_step issues", message)
    others = ("rank 1: train_step has", "rank", "rank 1: train_step", "worker 1: train_step issues")
    for wrong in (*(f"US4571: {other}" for other in others), "US4570: rank 1: train_step issues"):
        assert not begins(wrong, message), wrong


def test_the_rooms_page_shows_the_layers_as_they_are() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    shown = [block.splitlines() for block in blocks(ROOT / "docs" / "internals" / "rooms.md", "") if "| " in block]
    assert shown == layers, "the contracts in pyproject.toml are what holds"


def test_contributing_names_every_folder_of_the_tests_and_every_script() -> None:
    """Folders that mirror a room are named as a whole."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rooms = {path.name for path in (ROOT / "src" / "understudy").iterdir()}
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name != "__pycache__"} - rooms
    scripts = {path.name for path in (ROOT / "scripts").iterdir() if path.is_file()}
    for name in (*sorted(folders), *sorted(scripts)):
        assert f"| `{name}`" in text, f"CONTRIBUTING.md lacks {name}"


@EVERY_PAGE
def test_paths_exist(page: Path) -> None:
    """Paths of the project that are named in code."""
    for text in INLINE.findall(prose(page)):
        match = re.fullmatch(r"((?:docs|src|tests|examples|benchmarks|scripts)/[\w./-]*\w)/?", text)
        if match:
            assert (ROOT / match[1]).exists(), f"{page.name} names {text}"


@OUR_PAGES
def test_options_exist(page: Path) -> None:
    known = options()
    for command, flags in uses(page):
        if command == "COMMAND":
            continue
        assert command in known, f"{page.name} names understudy {command}"
        assert set(flags) <= known[command], f"{page.name}: understudy {command} has no {set(flags) - known[command]}"
    everything = set().union(*known.values())
    for text in INLINE.findall(prose(page)):
        if text.startswith("--"):
            assert OPTION.findall(text)[0] in everything, f"{page.name} names {text}"


def test_every_option_of_run_is_described() -> None:
    described = set(OPTION.findall((REFERENCE / "cli.md").read_text().partition("## understudy run\n")[2].partition("\n## ")[0]))
    long = {option for option in options()["run"] if option.startswith("--")} - {"--help"}
    assert long <= described


@EVERY_PAGE
def test_commands_are_run_by_a_test_or_have_a_reason_why_not(page: Path) -> None:
    """The test itself fails if it does not run what is said to be run by it; that of the quickstart runs a part for other pages, too."""
    quickstart = {line.partition(" #")[0].strip() for line in quickstart_commands()}
    for block in commands(page):
        assert re.fullmatch(r"run by tests/[\w/]+\.py|not run: .+", block.about), f"{page.name}: it is not said who runs\n{block.text}"
        for path in re.findall(r"tests/[\w/]+\.py", block.about):
            assert (ROOT / path).exists(), f"{page.name} names {path}"
        if "test_quickstart.py" in block.about:
            assert set(block.lines) <= quickstart, f"{page.name}: not a command of the quickstart:\n{block.text}"


@EVERY_PAGE
def test_python_blocks_parse(page: Path) -> None:
    for block in blocks(page, "python"):
        ast.parse(block)


@EVERY_PAGE
def test_plans_of_faults_can_be_carried_out(page: Path) -> None:
    for block in blocks(page, "toml"):
        if "entry-points" in block or "[[command]]" in block:
            continue  # tests/project/test_extending.py, test_detector_choice.py
        if page.parent.name == "network":
            continue  # tests/network/test_page.py
        if "[[rule]]" in block:
            continue  # below
        plan = make(tomllib.loads(block), registry())
        assert schedule(plan, registry(), 4, ["node0", "node1"])


def test_the_policy_of_the_page_can_be_used() -> None:
    (block,) = [block for block in blocks(ROOT / "docs" / "operate" / "detectors-and-policy.md", "toml") if "[[rule]]" in block]
    names = ["a GPU that fell off the bus", "a link that flaps", "slow ranks", "nodes that were silent"]
    assert [rule.name for rule in policy(block, "detectors-and-policy.md").rule] == names


@EVERY_PAGE
def test_both_sides_of_a_diff_parse(page: Path) -> None:
    for block in blocks(page, "diff"):
        lines = block.splitlines()
        for other in "-+":
            ast.parse("\n".join(line[1:] for line in lines if not line.startswith(other)))


@OUR_PAGES
def test_api_names_exist(page: Path) -> None:
    code = [*INLINE.findall(prose(page)), *blocks(page, "python"), *blocks(page, "diff")]
    for text in code if page.name != "extending.md" else ():  # it is not for scripts
        for name in re.findall(r"(?<![\w.])@?job\.(\w+)", text):
            assert name == "json" or hasattr(understudy.Job, name), f"{page.name} names job.{name}"
        for name in re.findall(r"(?<![\w.])understudy\.(?!dev\b)(\w+)", text):  # understudy.dev is the group of a resource
            assert name in understudy.__all__, f"{page.name} names understudy.{name}"


def test_public_names_are_described() -> None:
    text = (REFERENCE / "python.md").read_text()
    for name in (n for n in vars(understudy.Job) if not n.startswith("_")):
        assert f"### job.{name}\n" in text or f"| `job.{name}` |" in text
    for name in set(understudy.__all__) - {"__version__"}:
        assert f"## understudy.{name}\n" in text


def test_http_interface() -> None:
    text = (REFERENCE / "http.md").read_text()
    described = set(re.findall(r"`(GET|POST) (/[^\s`]+)", text))
    app = create_app(cast(Jobs, None), Access(["secret"]), cast(Cluster, object()))
    served = {(m, r.path) for r in app.routes if isinstance(r, APIRoute) for m in r.methods or ()}
    assert served | {("GET", "/openapi.json")} == described


def test_the_reference_is_as_the_sources_have_it() -> None:
    """Commands, Python, HTTP, variables, events, metrics, exit codes, messages: `make reference` writes them."""
    done = subprocess.run([sys.executable, "-m", "scripts.reference", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rooms_are_shown_as_they_are() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts" / "import_graph.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_follows_from_the_failure_of_a_device_is_what_tests_show() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts" / "device_outcomes.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_names_the_role_that_a_request_needs() -> None:
    description = describe()
    description["paths"]["/v1/nodes"]["get"]["x-role"] = "watcher"
    assert "Role: `watcher`." in "\n".join(requests(description)).partition("### GET /v1/nodes")[2].partition("###")[0]


@pytest.mark.whole
def test_a_stale_description_is_found(tmp_path: Path) -> None:
    """The scripts on a copy of the project in which the interface differs."""
    for name in ("src", "docs", "scripts"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    source = tmp_path / "src" / "understudy" / "orchestrator" / "api_models.py"
    source.write_text(source.read_text().replace("A node in a list.", "A node, in a list."))
    (tmp_path / "docs" / "reference" / "old.md").write_text("# A page that nothing makes\n")
    command = [sys.executable, "-m", "scripts.reference"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
    stale = subprocess.run([*command, "--check"], cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert stale.returncode == 1
    assert "-A node in a list." in stale.stdout and "+A node, in a list." in stale.stdout and "make reference" in stale.stdout
    assert "docs/reference/old.md" in stale.stdout
    assert subprocess.run(command, cwd=tmp_path, env=environment).returncode == 0
    assert "A node, in a list." in (tmp_path / "docs" / "reference" / "json.md").read_text()
    assert not (tmp_path / "docs" / "reference" / "old.md").exists()


def test_metrics_are_described() -> None:
    """Every metric that the source makes is collected for the page, also those of a service."""
    source = "".join((ROOT / "src" / "understudy" / room / "metrics.py").read_text() for room in ("orchestrator", "network"))
    made = {name + "_total" * (kind == "Counter") for kind, name in re.findall(r"(Gauge|Counter)MetricFamily\(\s*\"(\w+)\"", source)}
    described = set(re.findall(r"`(understudy_\w+)", (REFERENCE / "metrics.md").read_text()))
    assert made == described == set(map(name_of, [*metrics(), *rail_metrics()]))


@EVERY_PAGE
def test_metrics_exist(page: Path) -> None:
    assert set(re.findall(r"`(understudy_\w+)", page.read_text())) <= set(map(name_of, [*metrics(), *rail_metrics()]))


def test_keys_of_status_and_report() -> None:
    named = set(INLINE.findall((REFERENCE / "json.md").read_text()))
    kinds = (views.Status, views.RankStatus, views.SpareStatus, views.Report, views.IncidentReport, views.RankReport)
    for kind in kinds:
        assert set(kind.__annotations__) <= named, kind.__name__
    assert set(PHASES) <= named


@EVERY_PAGE
def test_variables_are_read_somewhere(page: Path) -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    for name in set(re.findall(r"UNDERSTUDY_[A-Z_]+", page.read_text())):
        assert name in source, f"{page.name} names {name}"


@EVERY_PAGE
def test_make_targets_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    patterns = tuple(re.findall(r"^([\w-]+)%:", makefile, re.MULTILINE))  # conformance-%: one for each part
    code = [*INLINE.findall(prose(page)), *(line for _, block in FENCE.findall(page.read_text()) for line in block.splitlines())]
    for text in code:
        match = re.match(r"make ([\w-]+)", text)
        if match:
            assert match[1] in targets or match[1].startswith(patterns), f"{page.name} names make {match[1]}"


def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][\w-]*):", makefile, re.MULTILINE)) - {"help"}
    listed = set(re.findall(r'@echo "\s+make ([\w-]+)', makefile))
    assert targets - listed == set() and listed - targets == {"conformance-1"}  # a target with a pattern, for each part


def test_every_dependency_has_its_sentence() -> None:
    text = (ROOT / "docs" / "internals" / "dependencies.md").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(item for group in project["optional-dependencies"].values() for item in group)]
    for requirement in wanted:
        name = re.split(r"[<>=~! \[]", requirement)[0]
        assert f"**{name}**" in text, name
