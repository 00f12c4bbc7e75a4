"""Contents of a notice of the census: the thing's name, the line that stores it, and the line to add."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import inspect
import itertools
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from tests.message_texts import has

from understudy.messages import census as notices
from understudy.messages.base import Message
from understudy.worker.census import census as module_of_census
from understudy.worker.census import naming, roots, stores, walk
from understudy.worker.census.census import Census
from understudy.worker.census.running import Running, running_in
from understudy.worker.census.stores import called, first_value, home, is_drawn, where

Script = Callable[..., ModuleType]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Makes `train.py`, the only module of the script, from its text."""

    def make(text: str, **names: Any) -> ModuleType:
        path = tmp_path / "train.py"
        path.write_text(textwrap.dedent(text).lstrip())
        spec = importlib.util.spec_from_file_location("train", path)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "train", module)
        monkeypatch.setattr(roots, "modules", lambda: [("train", vars(module))])
        vars(module).update(names)
        exec(compile(path.read_text(), str(path), "exec"), vars(module))
        return module

    return make


def at(name: str, *steps: tuple[str, Any], root: tuple[str, str] = ("module", "train")) -> walk.Path:
    return walk.Path(root, name, steps)


STORED = {
    "counted up in the loop": ("bad = 0\nfor i in ():\n    bad += 1", at("bad"), 3),
    "set again in the loop": ("bad = 0\nfor i in ():\n    bad = i", at("bad"), 3),
    "with others at once": ("best = 0\nwhile False:\n    best, at = 1, 2", at("best"), 3),
    "by a function, as a global": ("bad = 0\ndef step():\n    global bad\n    bad += 1", at("bad"), 4),
    "not by a function with a name of its own": ("bad = 0\ndef other():\n    bad = 1\nfor i in ():\n    bad += 1", at("bad"), 5),
    "not by one that gets it": ("bad = 0\ndef other(bad):\n    bad += 1", at("bad"), 1),
    "appended": ("seen = []\ndef step():\n    seen.append(1)", at("seen"), 3),
    "an item": ("seen = {}\ndef step():\n    seen['x'] = 1", at("seen"), 3),
    "an item of an item": ("seen = {}\ndef step():\n    seen['x'][0].append(1)", at("seen", ("item", "x"), ("item", 0)), 3),
    "in place": ("import torch\nbank = torch.zeros(2)\ndef step():\n    bank.add_(1)", at("bank"), 4),
    "deleted": ("seen = []\ndef step():\n    del seen[0]", at("seen"), 3),
    "drawn from by next": ("it = iter('')\nfor i in ():\n    x = next(it)", at("it"), 3),
    "drawn from by for": ("it = iter('')\nfor i in ():\n    for x in zip(it):\n        pass", at("it"), 3),
    "the target of a for": ("at = 0\nfor at in ():\n    pass", at("at"), 2),
    "of no frame": ("vars().update(hidden=1)", at("hidden"), 0),
    "an attribute": ("settings = print\ndef step():\n    settings.noise = 1", at("settings", ("attribute", "noise")), 3),
    "an item of an attribute": (
        "t = print\ndef step():\n    t.m['x'] += 1",
        at("t", ("attribute", "m"), ("item", "x")),
        3,
    ),
    "by setattr": ("settings = print\ndef step():\n    setattr(settings, 'noise', 1)", at("settings", ("attribute", "noise")), 3),
    "of an object of its own rather than of others": (
        "class A:\n    def up(self):\n        self.n += 1\nclass B:\n    def __init__(self):\n        self.n = 0\n    def up(self):\n"
        "        self.n += 1",
        at("thing", ("attribute", "n")),
        8,
    ),
    "of a class": ("class B:\n    patience = 3\ndef step():\n    B.patience = 2", at("patience", root=("class", "train.B")), 4),
    "of a class's body": ("class A:\n    patience = 3\nclass B:\n    patience = 3", at("patience", root=("class", "train.B")), 4),
    "of a function": ("def seen():\n    seen.calls = 1", at("calls", root=("function", "train.seen")), 2),
    "a default": ("def seen(before=[]):\n    before.append(1)", at("before=", root=("function", "train.seen")), 2),
    "of a frame": (
        "bad = 0\ndef main():\n    bad = 0\n    for i in ():\n        bad += 1",
        at("bad", root=("frame", "train.py:main")),
        5,
    ),
    "of a frame, by a function in it": (
        "class T:\n    def fit(self):\n        bad = 0\n        def up():\n            nonlocal bad\n            bad += 1",
        at("bad", root=("frame", "train.py:T.fit")),
        6,
    ),
    "captured": (
        "def make():\n    bad = 0\n    def step():\n        nonlocal bad\n        bad += 1",
        at("bad", root=("closure", "make.<locals>.step")),
        5,
    ),
}


@pytest.mark.parametrize("case", STORED)
def test_the_line_that_stores_it(script: Script, case: str) -> None:
    text, path, line = STORED[case]
    module = script(text)
    owner = getattr(module, "B", None) if path.name == "thing" else None
    assert where(path, owner) == (f"train.py:{line}" if line else "train.py")


def test_without_source_the_place_is_reported(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    script("")
    assert where(at("bad"), None) == "train.py"
    assert where(at("bad", root=("frame", "train.py:main")), None) == "train.py:main"
    assert where(at("bad", root=("closure", "make.<locals>.step")), None) == "function make.<locals>.step"
    assert called("model/value") == "model/value" and called("script:module:train:bad") == "bad (train.py)"
    assert home(("class", "__main__.Trainer")) == "class Trainer" and home(("module", "gone")) == "gone"


DRAWN = {
    "in a transaction": ("more = map(len, [])\ndef step():\n    next(more)", True),
    "in a function of one": ("more = map(len, [])\ndef step():\n    def inner():\n        next(more)", True),
    "in the loop of the job": ("more = map(len, [])\ndef main():\n    for i in job.steps(3):\n        next(more)", True),
    "by a loop in it": ("more = map(len, [])\ndef main():\n    for i in job.steps(3):\n        for x in more:\n            pass", True),
    "in the set-up": ("more = map(len, [])\nfor x in more:\n    next(more)", False),
    "by a function that any code may use": ("more = map(len, [])\ndef color():\n    return next(more)", False),
}


@pytest.mark.parametrize("case", DRAWN)
def test_an_iterator_that_does_not_show_its_position_is_found_in_the_source(script: Script, case: str) -> None:
    text, expected = DRAWN[case]
    script(text)
    assert is_drawn(at("more"), None, {"step"}) == expected
    census = Census(lambda: lambda thing: False, {at.__code__}, lambda name, stream: None)
    census.transaction(vars(sys.modules["train"]).get("step"))  # type: ignore[arg-type]
    census.set_up()
    census.at_top()
    census.encoded(None, True)
    assert [has(text, notices.ITERATOR_MOVES, shown="more") for text in census.news()] == [True] * expected


def test_every_source_can_be_searched(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """No source ends a training."""
    files = [
        Path(ast.__file__),
        Path(argparse.__file__),
        Path(inspect.__file__),
        Path(torch.nn.modules.module.__file__),
        Path(module_of_census.__file__),
    ]
    for file in files:
        monkeypatch.setattr(roots, "modules", lambda file=file: [("train", {"__file__": str(file)})])
        for path in (at("name"), at("self", ("attribute", "name")), at("name", root=("frame", f"{file.name}:main"))):
            where(path, int), first_value(path, None), is_drawn(path, None, ())


def test_what_the_set_up_sets_it_to(script: Script) -> None:
    script(
        "seen = defaultdict(list)\nbest = float('inf')\nfor i in ():\n    best = 3\nlong = 'some text that is too long to be shown'",
        defaultdict=lambda kind: kind(),
    )
    assert first_value(at("best"), None) == "float('inf')"
    assert first_value(at("seen"), None) == first_value(at("long"), None) == first_value(at("none"), None) == ""


# -- notices -------------------------------------------------------------------------------------------------------------------


def reported(kind: str, path: walk.Path, thing: Any = None) -> str:
    text = naming.notice(kind, [naming.Uncovered(path, thing)])
    assert "\n" not in text and len(text) < 400
    return text


def test_only_so_much_source_is_gone_through(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    script("bad = 0\nfor i in ():\n    bad += 1")
    assert has(reported(naming.LEFT, at("bad"), 3), notices.DIFFERS_BY_RANK, names="bad (train.py:3)")
    monkeypatch.setattr(stores, "SOURCE", 5)
    assert has(reported(naming.LEFT, at("bad"), 3), notices.DIFFERS_BY_RANK, names="bad (train.py)")


def test_an_iterator_is_replaced(script: Script) -> None:
    script("import itertools\nticks = itertools.count()\nrates = iter('')\nfor i in ():\n    next(ticks), next(rates)")
    counts = reported(naming.MOVED, at("ticks"), itertools.count())
    assert has(counts, notices.COUNTER_MOVES, names="ticks (train.py:5)", name="ticks")
    draws = reported(naming.MOVED, at("rates"), iter([1]))
    assert has(draws, notices.ITERATOR_MOVES, names="rates (train.py:5)", shown="rates")
    loads = reported(naming.MOVED, at("rates"), iter(torch.utils.data.DataLoader([1])))  # type: ignore[arg-type]
    assert has(loads, notices.LOADER_MOVES, names="rates (train.py:5)", shown="rates")


@pytest.mark.parametrize(
    ("body", "notice"),
    [
        ("loss = yield rate", notices.SENT_TO),
        ("rate += yield rate", notices.SENT_TO),
        ("print((yield rate))", notices.SENT_TO),
        ("yield rate", notices.ITERATOR_MOVES),
        ("yield from iter([rate])", notices.ITERATOR_MOVES),
    ],
)
def test_a_generator_that_is_sent_to_is_not_drawn_ahead(script: Script, body: str, notice: Message) -> None:
    module = script(f"def control(rate):\n    while True:\n        {body}\nrates = control(0.1)\nfor i in ():\n    next(rates)")
    assert has(reported(naming.MOVED, at("rates"), module.rates), notice, names="rates (train.py:6)")


def test_what_differs_is_put_into_a_namespace_or_ignored(script: Script) -> None:
    script("bad = 0\nfor i in ():\n    bad += 1")
    text = reported(naming.LEFT, at("bad"), 3)
    assert has(text, notices.DIFFERS_BY_RANK, names="bad (train.py:3)", name="bad", value="0", shown="bad")


def test_for_too_large_values_registering_is_advised_if_that_works(script: Script) -> None:
    script("history = []\nbank = print\nfor i in ():\n    history.append(1)\n    bank.data = 1")
    text = reported(naming.LARGE, at("bank", ("attribute", "data")), torch.zeros(2))
    assert has(text, notices.TOO_LARGE_TENSOR, names="bank.data (train.py:5)", name="data", shown="bank.data")
    text = reported(naming.LARGE, at("history"), [0.5])
    assert has(text, notices.TOO_LARGE_VALUE, names="history (train.py:4)", name="history", value="[]", shown="history")


def test_what_cannot_be_looked_at_is_named_as_far_as_it_is_known(script: Script) -> None:
    script("models = {}\nfor i in ():\n    models[i] = 1")
    assert has(reported(naming.UNREAD, at("", root=("frame", "train.py:main"))), notices.SOURCE_UNREADABLE, home="train.py:main")
    text = reported(naming.BEYOND, at("models", ("item", 7)))
    assert has(text, notices.LOOK_ENDED, names="models[7] (train.py:3)", root="models")


def test_of_many_four_are_named(script: Script) -> None:
    script("a = b = c = d = e = f = 0")
    text = naming.notice(naming.LEFT, [naming.Uncovered(at(name)) for name in "fedcba"])
    names = "a (train.py:1), like b (train.py:1), c (train.py:1), d (train.py:1) and 2 more,"
    assert has(text, notices.DIFFERS_BY_RANK, names=names, name="a")
    text = naming.notice(naming.BEYOND, [naming.Uncovered(at(name)) for name in "fedcba"])
    assert has(text, notices.LOOK_ENDED, names="a (train.py:1), b (train.py:1), c (train.py:1), d (train.py:1) and 2 more", root="a")
    text = naming.notice(naming.LEFT, [naming.Uncovered(at(name)) for name in "ba"])
    assert has(text, notices.DIFFERS_BY_RANK, names="a (train.py:1), like b (train.py:1),", name="a")


def test_the_census_reports_it(script: Script) -> None:
    module = script("class Meter:\n    def up(self):\n        self.sum += 1\nmeter = Meter()\nmeter.sum = 0\nseen = {}")
    census = Census(lambda: lambda thing: False, {test_the_census_reports_it.__code__}, lambda name, stream: None)
    census.set_up()
    module.meter.up()
    (entry,) = [entry for entry in census.encoded(None, True) if entry.endswith("meter.sum")]
    (adopted,) = [item for item in census.listed(()) if item.entry == entry]
    assert (adopted.name, adopted.root, adopted.kind, adopted.size > 0) == ("meter.sum", "train.py", "adopted", True)
    assert census.leave(entry)
    (text,) = census.news()
    assert has(text, notices.DIFFERS_BY_RANK, names="meter.sum (train.py:3)", name="sum", value="0") and census.news() == []
    census.ignore(["seen"])
    (other,) = [item for item in census.listed(["script:frame:train.py:main.<locals>.f:seen['a:b']"]) if item.kind == "adopted"]
    assert (other.root, other.name, other.size) == ("train.py:main.<locals>.f", "seen['a:b']", 0)
    rest = {(item.name, item.kind): item for item in census.listed(()) if item.root in ("train.py", "")}
    assert set(rest) == {("meter.sum", "left"), ("seen", "ignored")} and has(rest["meter.sum", "left"].why, notices.LISTED_LEFT)


def test_ignored_things_are_not_searched(script: Script) -> None:
    module = script("models = {}")
    vars(module)["models"] |= {number: SimpleNamespace(lock=object()) for number in range(50)}
    every = walk.look({("module", "train"): roots.ModuleNames(vars(module))}, lambda thing: False)
    few = walk.look({("module", "train"): roots.ModuleNames(vars(module))}, lambda thing: False, lambda path: path.name == "models")
    assert every.objects - few.objects > 100


# -- loops of the job ----------------------------------------------------------------------------------------------------------

RUNNING = {
    "plain": ("for x in job.batches(0):\n    use(x), mark()", ""),
    "steps": ("for i in job.steps(9):\n    use(i), mark()", ""),
    "around it": ("for e, n in enumerate(range(2)):\n    for x in job.batches(0):\n        use(x, e), mark()", ""),
    "inside it": ("for x in job.batches(0):\n    for n, y in enumerate([1]):\n        use(n), mark()", ""),
    "no loop of the job": ("for n, x in enumerate([1]):\n    use(n), mark()", ""),
    "a bar of progress": ("for x in bar(job.batches(0)):\n    use(x), mark()", ""),
    "a number that is not read": ("for n, x in enumerate(job.batches(0)):\n    use(x), mark()", ""),
    "a number": ("for n, x in enumerate(job.batches(0)):\n    use(n), mark()", "enumerate n"),
    "a number inside a bar": ("for n, x in bar(enumerate(job.batches(0))):\n    use(n), mark()", "enumerate n"),
    "pairs": ("for x, y in zip(job.batches(0), others):\n    use(x, y), mark()", "zip y of others"),
    "pairs of which one is not read": ("for x, y in zip(job.batches(0), others):\n    use(x), mark()", ""),
    "pairs with the same each time": ("for x, y in zip(job.batches(0), itertools.repeat(1)):\n    use(x, y), mark()", ""),
    "numbered pairs": ("for n, (x, y) in enumerate(zip(job.batches(0), others)):\n    use(n, y), mark()", "enumerate n, zip y of others"),
    "only some": ("for x in itertools.islice(job.batches(0), 3):\n    use(x), mark()", "islice islice"),
    "a name for what is gone through": ("for n, x in gone(through=job.batches(0)):\n    use(n), mark()", ""),
    "a while": ("while not seen:\n    mark()", ""),
}


@pytest.mark.parametrize("case", RUNNING)
@pytest.mark.parametrize("inside", [False, True], ids=["module", "function"])
def test_counters_alongside_the_loop_of_the_job(script: Script, case: str, inside: bool) -> None:
    text, expected = RUNNING[case]
    if inside:
        text = "def main():\n" + textwrap.indent(text, "    ") + "\nmain()"
    seen: list[tuple[Running, ...]] = []

    def mark() -> None:
        frame: FrameType = sys._getframe(1)
        seen.append(running_in(frame))

    job = SimpleNamespace(steps=range, batches=lambda loader: [0])
    script(
        text,
        job=job,
        mark=mark,
        seen=seen,
        use=lambda *things: None,
        bar=iter,
        gone=lambda through: enumerate(through),
        others=[1],
        itertools=itertools,
    )
    found = [", ".join(f"{one.what} {one.name}" + (f" of {one.source}" if one.source else "") for one in each) for each in seen]
    assert set(found) == {expected} and all(one.where == f"train.py:{1 + inside}" for each in seen for one in each)


def test_counters_alongside_it_are_reported() -> None:
    text = naming.loop_notice([Running("enumerate", "n", "", "train.py:4"), Running("zip", "y", "others", "train.py:4")])
    assert text == notices.ENUMERATE_COUNTS(name="n", place="train.py:4", more=" (one of 2)")
    text = naming.loop_notice([Running("zip", "y", "others", "train.py:4")])
    assert has(text, notices.ZIP_DRAWS, name="y", source="others", place="train.py:4", more="")
    text = naming.loop_notice([Running("islice", "islice", "", "train.py:4")])
    assert has(text, notices.ISLICE_COUNTS, place="train.py:4", more="")
