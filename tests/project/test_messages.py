"""Messages have codes: every call fills in its template, every code is there once, and tests assert codes, never sentences."""

from __future__ import annotations

import ast
import copy
import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.said import arguments_of, codes, refused, said
from typer.testing import CliRunner

import understudy.messages
from understudy.cli import app
from understudy.messages.base import Message, code_of
from understudy.messages.registry import AREAS, registry

ROOT = Path(understudy.messages.__file__).parents[1]
TESTS = Path(__file__).parents[1]
EXAMPLE = Message("US1999", "{name!r} came {late} steps late", cause="a test", remedy="none")


def calls() -> Iterator[tuple[str, Message, ast.Call]]:
    """Every call of a message in our sources, as MODULE.NAME(...), and where it is."""
    for path in sorted(ROOT.rglob("*.py")):
        tree = ast.parse(path.read_text())
        modules, names = {}, {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("understudy.messages"):
                for alias in node.names:
                    modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        for local, dotted in modules.items():
            package, _, name = dotted.rpartition(".")
            found = getattr(__import__(package, fromlist=["_"]), name, None)
            names[local] = __import__(dotted, fromlist=["_"]) if found is None else found
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            target: object = None
            if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
                target = getattr(names.get(node.func.value.id), node.func.attr, None)
            elif isinstance(node.func, ast.Name):
                target = names.get(node.func.id)
            if isinstance(target, Message):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", target, node


def test_every_call_gives_what_its_template_needs() -> None:
    for place, message, node in calls():
        assert not node.args, f"{place}: {message.code} takes its arguments by name"
        given = {keyword.arg for keyword in node.keywords}
        assert None in given or given == set(message.fields), f"{place}: {message.code} has {sorted(message.fields)}, given {given}"


def test_every_message_is_used_and_explained() -> None:
    source = "\n".join(path.read_text() for path in ROOT.rglob("*.py") if "messages" not in path.parts)
    for module in sorted((ROOT / "messages").rglob("*.py")):
        for node in ast.parse(module.read_text()).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and getattr(node.value.func, "id", "") == "Message":
                assert isinstance(node.targets[0], ast.Name)
                assert node.targets[0].id in source, f"{module.name}: {node.targets[0].id} is never used"
    for message in registry().values():
        assert message.code[:3] in AREAS, message.code
        assert message.cause and "\n" not in message.template, message.code


def test_a_message_knows_its_code_and_arguments() -> None:
    text = EXAMPLE(name="model", late=3)
    assert text == "US1999: 'model' came 3 steps late"
    assert code_of(text) == code_of(str(text)) == "US1999"
    for same in (pickle.loads(pickle.dumps(text)), copy.deepcopy(text)):
        assert same == text and arguments_of(same) == {"name": "model", "late": 3}
    assert json.loads(json.dumps({"reason": text})) == {"reason": str(text)}
    with pytest.raises(KeyError):
        EXAMPLE(name="model")


def test_what_tests_assert() -> None:
    text = f"understudy: {EXAMPLE(name='model', late=3)}\nmore"
    assert said(text, EXAMPLE, name="model") and said(text, EXAMPLE, late=3) and said(text.replace(" ", "\n"), EXAMPLE)
    assert not said(text, EXAMPLE, name="optimizer") and not said("US1998: 'model' came 3 steps late", EXAMPLE)
    assert codes(text) == ["US1999"]
    with refused(ValueError, EXAMPLE, late=3):
        raise ValueError(EXAMPLE(name="model", late=3))
    with pytest.raises(AssertionError, match="US1999"), refused(ValueError, EXAMPLE, late=4):
        raise ValueError(EXAMPLE(name="model", late=3))


def test_a_code_is_explained() -> None:
    message = next(iter(registry().values()))
    shown = CliRunner().invoke(app, ["explain", message.code.lower()])
    assert shown.exit_code == 0
    assert message.cause.split()[-1] in shown.output
    (entry,) = json.loads(CliRunner().invoke(app, ["explain", message.code, "--json"]).output)
    assert entry == vars(message)


def test_all_codes_are_listed() -> None:
    listed = CliRunner().invoke(app, ["explain", "--json"])
    assert [entry["code"] for entry in json.loads(listed.output)] == list(registry())


def test_a_code_that_is_not_there_is_refused() -> None:
    shown = CliRunner().invoke(app, ["explain", "US2999"])
    assert shown.exit_code == 2
    assert "US2001" in shown.output
