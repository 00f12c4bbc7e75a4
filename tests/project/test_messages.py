"""Messages have codes: every call fills in its template, every code is there once, and tests assert codes, never sentences."""

from __future__ import annotations

import ast
import copy
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest
from tests.message_texts import arguments_of, codes, has, refused
from typer.testing import CliRunner

import understudy.messages
from understudy.cli import app
from understudy.messages.base import Message, code_of
from understudy.messages.registry import AREAS, registry

ROOT = Path(understudy.messages.__file__).parents[1]
TESTS = Path(__file__).parents[1]
PLAIN = {  # exceptions whose text has no code, and why
    "AssertionError": "an invariant of ours",
    "AttributeError": "what Python itself says of a module",
    "Beyond": "caught by the drill that raises it",
    "Changed": "of the doctor's probes: an argument of doctor.LACKS_INTERNAL, or a line of its table",
    "ConnectionRefusedError": "of the agent's own socket: caught by the worker that asks again",
    "FileNotFoundError": "a page that is not written yet: caught by the next look",
    "GenerationAborted": "unwinds a step that is done again, and ends no job",
    "InvariantBroken": "an invariant of ours, which the core tells with a code",
    "NotHere": "of the doctor's probes: a line of its table",
    "PeerLost": "an argument of the message about the loss or the drill that follows",
    "Rehearsed": "caught by the drill that raises it",
    "BrokenOff": "caught by the drill that raises it",
    "Unencodable": "caught, or an argument of the message that names the value",
    "Unfit": "caught: the value is not carried over",
}
PLACES = {  # one that may, in a file where others may not
    ("core/commit.py", "ValueError"): "an invariant of ours",
    ("messages/registry.py", "ValueError"): "an invariant of ours: a code is there once",
    ("detectors/command.py", "RuntimeError"): "an invariant of ours: a check runs once at a time",
    ("worker/doctor", "RuntimeError"): "of the doctor's probes",
    ("worker/encoding/codec.py", "ValueError"): "an argument of the message that names what is malformed",
    ("worker/process/template.py", "OSError"): "an argument of worker_processes.CANNOT_FORK",
    ("worker/transport/rendezvous.py", "RuntimeError"): "its store is over: caught by the recovery that has ended it",
}
WORDS = 5  # in a row, by which a sentence is known
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


def test_user_facing_exceptions_carry_messages() -> None:
    """So do notices to users: neither is made from a plain text in place."""
    found, needed = [], set[object]()
    for path in sorted(ROOT.rglob("*.py")):
        file = str(path.relative_to(ROOT))
        for node in ast.walk(ast.parse(path.read_text())):
            call = node.exc if isinstance(node, ast.Raise) else node
            if not isinstance(call, ast.Call) or not any(isinstance(word, ast.JoinedStr) or _is_text(word) for word in call.args):
                continue
            name = ast.unparse(call.func).rpartition(".")[2]
            if isinstance(node, ast.Raise) and name[:1].isupper():
                places = [place for place in PLACES if file.startswith(place[0]) and place[1] == name]
                needed.update(places, {name} & PLAIN.keys() if not places else ())
                if not places and name not in PLAIN:
                    found.append(f"{file}:{call.lineno} raises {ast.unparse(call)}")
            elif name in ("say", "_say"):
                found.append(f"{file}:{call.lineno} tells {ast.unparse(call)}")
    assert found == []
    assert needed == PLAIN.keys() | PLACES.keys(), "what may stay stays"


def test_tests_compare_with_no_sentence_of_a_message() -> None:
    """With its code and its arguments instead, so that the sentence can be improved."""
    sentences = {message.code: max(_literals(message), key=lambda words: len(words.split())) for message in registry().values()}
    long = {code: words for code, words in sentences.items() if len(words.split()) >= WORDS}
    assert len(long) > 500
    found = []
    for path in sorted(TESTS.rglob("*.py")):
        if path == Path(__file__) or path.name == "__main__.py" or "jobs" in path.parts or path.parent.name == "scripts":
            continue
        for line, text in _compared(ast.parse(path.read_text())):
            words = _plain(text)
            found += [f"{path.relative_to(TESTS)}:{line} {code}: {some}" for code, some in long.items() if some in words]
    assert found == []


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _literals(message: Message) -> list[str]:
    """Return the texts between its arguments."""
    return [_plain(words) for words, *_ in Formatter().parse(message.template)]


def _plain(text: str) -> str:
    return " ".join(text.split())


def _compared(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the texts of a test, except those for people only: docstrings, and messages of assertions and exceptions."""
    aside = set[ast.AST]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and node.msg is not None:
            aside.update(ast.walk(node.msg))
        elif isinstance(node, ast.Expr | ast.Raise):
            aside.update(ast.walk(node) if isinstance(node, ast.Raise) or isinstance(node.value, ast.Constant) else ())
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in aside:
            yield node.lineno, node.value


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
    assert has(text, EXAMPLE, name="model") and has(text, EXAMPLE, late=3) and has(text.replace(" ", "\n"), EXAMPLE)
    assert not has(text, EXAMPLE, name="optimizer") and not has("US1998: 'model' came 3 steps late", EXAMPLE)
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
