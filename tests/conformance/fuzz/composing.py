"""Composes training scripts of states that are hidden in places, changed in ways, at sites; each feeds a parameter of its own.

A script has two ranks, a tiny model, eight steps, and a section after every other step. Each hidden state is a number that is multiplied by
one parameter in the loss, so its gradient is that number: where the state was wrong, this parameter differs, and no other does.

Limits: a state is read in every step, at its beginning; only `torch.optim.SGD` and replicated models.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.conformance.fuzz.places import IMPORTS, PLACES, READ, Place
from tests.conformance.scripts import Kill

NAMES = ("amber", "birch", "cedar", "dusky", "ember", "fjord", "grape", "hazel")  # of hidden states; no message has these words
RANKS, STEPS, EVERY = 2, 8, 2  # a section after so many steps
LAYOUTS = ("module", "main")  # where the script's names are
LOOPS = ("steps", "batches")
MODELS = ("ddp", "plain")
IN_STEP = ("at the beginning of the step", "in a function of the step", "before the vote", "after the vote")
BETWEEN, SECTION = "between two steps", "in a section"
SITES = (*IN_STEP, BETWEEN, SECTION)
READERS = ("the step", "the loop")  # the loop passes it to the step as an argument
HELPERS = """
class Holder:
    def __init__(self, level):
        self.level = level

    def get(self):
        return self.level


class Options(dict):
    pass


class Items(list):
    pass


class Window(collections.deque):
    total = 0.0

    def put(self, value):
        self.total += value
        self.append(value)
        if len(self) > 2:
            self.popleft()


class Calls:
    count = 0

    def __call__(self):
        self.count += 1


class Steps:
    place = 0

    def __next__(self):
        self.place += 1
        return self.place


class Lazy:
    @functools.cached_property
    def kept(self):
        return [1.0]


@dataclasses.dataclass(frozen=True)
class Frozen:
    level: float


def remembered(function):
    @functools.wraps(function)
    def call():
        return function()

    call.kept = {}
    return call


def rewrite(file, text):
    file.seek(0)
    file.truncate()
    file.write(text)


def first_of(file):
    file.seek(0)
    return float(file.read())


def no_change(module, inputs, outputs):
    return None


class Model(nn.Module):
    def __init__(self, names):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        self.probes = nn.ParameterDict({name: torch.zeros(1) for name in names})

    def forward(self, inputs, values):
        fed = sum(probe * value for probe, value in zip(self.probes.values(), values, strict=True))
        return self.net(inputs), fed.sum()
"""


@dataclass(frozen=True)
class Hidden:
    place: str  # a key of PLACES
    way: str
    site: str = "before the vote"
    reader: str = "the step"

    def __str__(self) -> str:
        if self.way == READ:
            return f"{self.place}, read by {self.reader}"
        return f"{self.place} that {self.way} {self.site}, read by {self.reader}"


@dataclass(frozen=True)
class Drawn:
    """All that makes up a script."""

    hidden: tuple[Hidden, ...]
    kills: tuple[Kill, ...]
    layout: str = "module"
    loop: str = "steps"
    model: str = "ddp"

    @property
    def names(self) -> dict[str, Hidden]:
        return dict(zip(NAMES, self.hidden, strict=False))


def combinations() -> Iterator[Hidden]:
    """Every place with each way to change it."""
    return (Hidden(place.name, way) for place in PLACES.values() for way in place.ways)


def composed(drawn: Drawn) -> str:
    """The source of the script."""
    about = "; ".join(f"{name}: {hidden}" for name, hidden in drawn.names.items())
    head = [
        '"""A drawn script with hidden state.',
        "",
        *(f"{part.strip()}" for part in about.split(";")),
        '"""',
        "",
        "# group: drawn",
        f"# ranks: {RANKS}",
        "# expect: not silent",
        f"# kills: {' '.join(f'{kill.point}@{kill.step}:{kill.rank}' for kill in drawn.kills)}",
        "",
        f"import {IMPORTS}",
        "",
        "import numpy as np",
        "from _common import DDP, dist, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch",
        "",
        HELPERS,
    ]
    body = _body(drawn)
    if drawn.layout == "main":
        body = ["def main():", *_indented(body), "", "", "main()"]
    return "\n".join([*head, "", *body, ""])


def _body(drawn: Drawn) -> list[str]:
    reads = {name: fragment(name, PLACES[hidden.place].read) for name, hidden in drawn.names.items()}
    given = {name: read for name, read in reads.items() if drawn.names[name].reader == "the loop"}
    values = ", ".join(f"given['{name}']" if name in given else f"float({read})" for name, read in reads.items())
    passed = ", ".join(f"'{name}': float({read})" for name, read in given.items())
    at = {site: _changes(drawn, [site]) for site in SITES}
    names = tuple(drawn.names)
    reduce = ["for parameter in model.parameters():", "    dist.all_reduce(parameter.grad)", "    parameter.grad /= job.world_size"]
    setup = itertools.chain(*(fragment(name, PLACES[hidden.place].setup).splitlines() for name, hidden in drawn.names.items()))
    step = [
        *_declared(drawn, IN_STEP[:1] + IN_STEP[2:]),
        "inputs, targets = batch",
        "seen = inputs.mean().item()",
        *at["at the beginning of the step"],
        "optimizer.zero_grad()",
        f"outputs, fed = model(inputs, [{values}])",
        "loss = loss_of(outputs, targets, n, seen) + fed",
        "loss.backward()",
        *(reduce if drawn.model == "plain" else ()),
        *at["before the vote"],
        "optimizer.step()",
        *at["after the vote"],
        "return {name: probe.item() for name, probe in probes.items()}",
    ]
    loss = [*_declared(drawn, IN_STEP[1:2]), *at["in a function of the step"], "return nn.functional.mse_loss(outputs, targets)"]
    section = [
        *_declared(drawn, [SECTION]),
        "with torch.no_grad():",
        "    found = net(held_out[job.rank :: job.world_size]).sum()",
        "seen = found.item()",
        *at[SECTION],
        "dist.all_reduce(found)",
        "return found.item()",
    ]
    loop = [
        *(["n = job.committed"] if drawn.loop == "batches" else ["batch = torch.randn(4, 4), torch.randn(4, 1)"]),
        f'trace.line(f"step {{n + 1}}", **train_step(batch, n, {{{passed}}}))',
        *(["seen = batch[0].mean().item()"] if at[BETWEEN] else []),
        *at[BETWEEN],
        f"if n % {EVERY} == {EVERY - 1}:",
        '    trace.line(f"evaluation {n}", found=evaluate(n))',
    ]
    return [
        "job = join_seeded()",
        f"data = random_dataset({RANKS * STEPS * 4}, 4, 1)",
        "loader = sharded_loader(data, 4)",
        "held_out = torch.randn(8, 4)",
        f"inner = Model({names!r})",
        "net, probes = inner.net, inner.probes",
        f"model = {'DDP(inner)' if drawn.model == 'ddp' else 'inner'}",
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)",
        *setup,
        "job.register(model=model, optimizer=optimizer)",
        "trace = start_trace(job)",
        *_function("loss_of", "outputs, targets, n, seen", loss),
        *_function("train_step", "batch, n, given", step, "@job.step"),
        *_function("evaluate", "n", section, "@job.section"),
        f"for n in job.steps({STEPS}):" if drawn.loop == "steps" else "for batch in job.batches(loader):",
        *_indented(loop),
        "",
        "trace.final(model=model, optimizer=optimizer)",
    ]


def fragment(name: str, text: str) -> str:
    """A fragment of a place, for the state of this name."""
    return text.format(h=name, H=name.upper())


def _changes(drawn: Drawn, sites: Iterable[str]) -> list[str]:
    found: list[str] = []
    for name, hidden in drawn.names.items():
        if hidden.site in sites and hidden.way != READ:
            found += fragment(name, PLACES[hidden.place].ways[hidden.way]).splitlines()
    return found


def _declared(drawn: Drawn, sites: Iterable[str]) -> list[str]:
    """Declares names that are set in a function and belong to the script."""
    names = [name for name, hidden in drawn.names.items() if hidden.site in sites and hidden.way != READ and _place(hidden).rebinds]
    return [f"{'global' if drawn.layout == 'module' else 'nonlocal'} {', '.join(names)}"] if names else []


def _place(hidden: Hidden) -> Place:
    return PLACES[hidden.place]


def _function(name: str, parameters: str, body: list[str], decorator: str = "") -> list[str]:
    return ["", *([decorator] if decorator else []), f"def {name}({parameters}):", *_indented(body), ""]


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" if line else "" for line in lines]
