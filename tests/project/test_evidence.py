"""The pages of `docs/evidence` are generated: they show what their JSON holds, and every figure has its command and its commit."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.table import Table
from scripts.evidence import page, views
from scripts.evidence.__main__ import main
from scripts.evidence.record import record
from scripts.evidence.store import PAGES, load, save

from evidence import cells

ENTRY = {"what": "a try", "result": "good", "command": "make x", "recorded": "abc", "columns": ["a", "b"], "rows": [["1", "2|3"]]}


def test_the_pages_show_their_results(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("name", PAGES)
def test_every_figure_has_its_command_and_commit(name: str) -> None:
    for key, entry in load(name).items():
        assert entry["command"], key
        assert entry.get("commit") or entry.get("recorded"), key
        assert entry["date"], key


@pytest.fixture
def templates(tmp_path: Path) -> Path:
    (tmp_path / "made.md").write_text("# Made\n\n{{ summary }}\n\n## The part\n\n{{ one }}\n")
    return tmp_path


def test_an_entry_is_shown_at_its_place(templates: Path) -> None:
    text = page.document("made", {"one": {**ENTRY, "noise": "all", "notes": ["so"]}}, templates)
    assert "| [a try](#the-part) | good |" in text
    place = "## The part\n\n`make x`; recorded in `abc`.\n\n| a | b |\n|---|---|\n| 1 | 2\\|3 |\n\n**Noise:** all\n\n- so\n"
    assert text.endswith(place)


def test_an_entry_without_a_place_is_noticed(templates: Path) -> None:
    with pytest.raises(ValueError, match="two"):
        page.document("made", {"one": ENTRY, "two": ENTRY}, templates)
    with pytest.raises(ValueError, match="one"):
        page.document("made", {}, templates)


def test_a_new_run_replaces_all_about_the_old_one(tmp_path: Path) -> None:
    for name in PAGES:
        save(name, load(name), tmp_path)
    assert main(["--check"], tmp_path) == 1, "there are no pages"
    assert (main([], tmp_path), main(["--check"], tmp_path)) == (0, 0)
    entries = load("benchmarks", tmp_path)
    save("benchmarks", entries | {"leaving": entries["leaving"] | {"notes": ["stale"]}}, tmp_path)
    assert main(["--check"], tmp_path) == 1
    record("benchmarks", "leaving", [("all", "1.5")], ["seconds", "spares"], "better", folder=tmp_path)
    (new, others) = load("benchmarks", tmp_path), set(entries) - {"leaving"}
    assert {key: new[key] for key in others} == {key: entries[key] for key in others}
    assert new["leaving"]["what"] == entries["leaving"]["what"]
    assert new["leaving"]["rows"] == [["all", "1.5"]]
    assert new["leaving"]["result"] == "better"
    assert new["leaving"]["command"].startswith("python ")
    assert not {"recorded", "notes", "noise"} & new["leaving"].keys()
    assert "| all | 1.5 |" in (tmp_path / "benchmarks.md").read_text()


def test_cells_that_are_alike_are_one_row() -> None:
    phases, all_of = ["vote", "apply"], ["replaced", "replaced"]
    rows = [
        *([mode, fault, *all_of] for mode in ("DDP", "HSDP") for fault in ("kill", "exit")),
        ["DDP", "reset", "rejoined", "undisturbed"],
        ["HSDP", "reset", "rejoined", "undisturbed"],
        ["DDP", "memory", "ends", "ends"],
        ["HSDP", "memory", "ends", "(1)"],
    ]
    text = views.matrix({"columns": ["parallelism", "fault", *phases], "rows": rows, "reasons": ["no line runs"]})
    for line in (
        "| replaced | `kill`, `exit` |",
        "| rejoined; undisturbed in apply | `reset` |",
        "| ends; (1) in apply (HSDP) | `memory` |",
        "(1) Not applicable: no line runs.",
    ):
        assert line in text.splitlines()


@pytest.mark.parametrize(
    "about, found",
    [
        ("Short and complete.", "Short and complete"),
        ("A hook that was written here: it averages gradients over all of the ranks in half precision.", "A hook that was written here"),
        ("One two three four five six seven eight nine of the twelve.", "One two three four five six seven eight nine …"),
    ],
)
def test_what_a_script_does_has_at_most_ten_words(about: str, found: str) -> None:
    assert views.brief(about) == found


def test_the_cells_of_a_printed_table() -> None:
    table = Table("", "one", title="left out")
    table.add_row("a", "1")
    assert cells(table) == (["", "one"], [["a", "1"]])
    assert cells("|  | one |\n|---|---|\n| a | 1 |\n") == (["", "one"], [["a", "1"]])
