"""The language of the scenario files: events go into the machine, commands come out, and both are readable.

    # a comment
    job world=4 spares=1          a new machine; nodes=2 domains=a,b: on two nodes in different failure domains; racks=a,b: NVLink domains
    training transaction=17       shorthand: nodes join, workers warm, take their ranks and commit; prints nothing
    @ +0.5                        time passes (seconds)
    > WorkerLost w2 cause=killed detail="signal 9" ago=0.01
    < KillWorker w2 reason="killed: signal 9"
    ? incidents                   a question about the state; the lines that answer it start with "="
    = ...

The first word after an event's name is its worker (several with commas: the event comes from each in turn), rank or
timer. The nodes of `NodesLost n1,n2` are lost together, in one event. `position=17/voted` and `copies=2@16,3@16` are
written as they are read. Time starts at 1000 s and advances 1 ms per event. A message is written as its code and arguments,
`US4060(rank=1, detail="signal 9")`, not as its text. `python -m tests.scenarios.language FILES` writes the answers of the
present machine into the files: read the difference.
"""

from __future__ import annotations

import dataclasses
import shlex
import sys
from pathlib import Path
from typing import Any

from understudy.core import events
from understudy.core.commands import Command
from understudy.core.machine import Machine
from understudy.core.model import BuddyCopyRef, DrillVerdict, Incident, JobSpec, LossCause, Position, Timeouts, VotePhase
from understudy.messages.base import Text

START = 1000.0
_SUBJECT = ("worker", "node", "nodes", "timer", "rank", "reason")


class Scenario:
    """One run through a file."""

    def __init__(self) -> None:
        self.now = START
        self.machine = Machine(JobSpec("job", 1, 1, spares=0), Timeouts())
        self.domains: list[str] = []
        self.racks: list[str] = []
        self.messages: dict[str, Text] = {}  # messages so far: others quote them

    def run(self, text: str) -> str:
        """Return the file with the machine's present answers after each of its inputs."""
        lines: list[str] = []
        for line in text.splitlines():
            if line.startswith(("<", "=")):
                continue
            lines.append(line.rstrip())
            words = shlex.split(line, comments=True)
            if words:
                lines += self._do(words)
        return "\n".join(lines) + "\n"

    def _do(self, words: list[str]) -> list[str]:
        match words:
            case ["job", *rest]:
                self._job(_options(rest))
            case ["training", *rest]:
                self._training(**{name: int(value) for name, value in _options(rest).items()})
            case ["@", change]:
                self.now += float(change)
            case ["?", "incidents"]:
                return [self._plain(line) for incident in self.machine.incidents() for line in self._show_incident(incident)]
            case ["?", "ranks"]:
                workers = self.machine.state.workers
                held = sorted(self.machine.state.ranks.items())
                return [f"= rank {rank}: {name} {workers[name].state}" for rank, name in held]
            case ["?", "taints"]:
                return [self._plain(f"= {node.name}: {node.taint}") for node in self.machine.state.nodes.values() if node.taint]
            case ["?", "held"]:
                dispute = self.machine.state.dispute
                return [f"= {self._plain(dispute.detail)}"] if dispute is not None else []
            case ["?", "places"]:
                holding = [self.machine.state.workers[name] for _, name in sorted(self.machine.state.ranks.items())]
                return [f"= rank {worker.rank}: {worker.node}, local rank {worker.local_rank}" for worker in holding]
            case ["?", "claims"]:
                claims = self.machine.state.claims.values()
                return [f"= claim {claim.number}: rank {claim.rank}, {claim.node or 'no node yet'}" for claim in claims]
            case ["?", "refused"]:
                return [f"= {what}, {why}: {count}" for (what, why), count in sorted(self.machine.state.refused.items())]
            case [">", name, *rest]:
                return [line for event in self._events(name, rest) for line in self._shown(self._handle(event))]
            case _:
                raise ValueError(f"not a line of a scenario: {words}")
        return []

    def _job(self, options: dict[str, str]) -> None:
        nodes = int(options.pop("nodes", "1"))
        world = int(options.pop("world"))
        self.domains = options.pop("domains", "," * (nodes - 1)).split(",")
        self.racks = options.pop("racks", "," * (nodes - 1)).split(",")
        kept = tuple(options.pop("keep_together").split(",")) if "keep_together" in options else ()
        replenish = options.pop("replenish", "yes") == "yes"
        limits = {name: float(options.pop(name)) for name in ("quiesce",) if name in options}
        rest: dict[str, Any] = {name: int(value) for name, value in options.items()}
        spec = JobSpec("job", world, world // nodes, nodes=nodes, replenish=replenish, keep_together=kept, **rest)
        self.machine = Machine(spec, Timeouts(**limits))
        self.now = START

    def _training(self, transaction: int = 0) -> None:
        spec = self.machine.state.spec
        self.now = START - 100
        for node in range(spec.nodes):
            labels = (("nvlink-domain", self.racks[node]),) if self.racks[node] else ()
            self._handle(events.NodeJoined(f"n{node}", f"10.0.0.{node}", node, self.domains[node], labels=labels))
        for number, worker in enumerate(list(self.machine.state.workers.values())):
            self._handle(events.WorkerStarted(worker.name, worker.node, 100 + number))
            self._handle(events.WorkerWarm(worker.name, f"{worker.node}:{7000 + number}"))
        for name in self.machine.state.ranks.values():
            if transaction > 0:
                self._handle(events.Committed(name, 0, 0, 1))
        for name in self.machine.state.ranks.values():
            self.machine.state.workers[name].step = transaction
        self.now = START

    def _handle(self, event: events.Event) -> list[Command]:
        commands = self.machine.handle(event, self.now)
        self.now += 0.001
        return commands

    def _events(self, name: str, words: list[str]) -> list[events.Event]:
        kind: Any = getattr(events, name)
        names = [field.name for field in dataclasses.fields(kind)]
        subject = next((field for field in _SUBJECT if field in names), "")
        given = _options([word for word in words if "=" in word])
        words_alone = [word for word in words if "=" not in word]
        subjects = (words_alone if subject == "nodes" else [part for word in words_alone for part in word.split(",")]) or [""]
        made: list[events.Event] = []
        for value in subjects:
            raw = {subject: value, **given} if value else dict(given)
            made.append(kind(**{field: self._value(field, raw) for field in names if field in raw or _needed(kind, field)}))
        return made

    def _value(self, field: str, raw: dict[str, str]) -> object:
        text = raw.get(field, "")
        match field:
            case "happened":
                return self.now - float(raw.get("ago", "0"))
            case "until" | "deadline":
                return float(text)
            case "leave" | "lose" | "passed":
                return text == "yes"
            case "started":
                return self.now - float(raw.get("seconds", "0"))
            case "cause":
                return LossCause(text)
            case "position":
                place, stand = text.split("/")
                return Position(int(place), VotePhase(stand))
            case "copies":
                pairs = [part.split("@") for part in text.split(",") if part]
                return tuple(BuddyCopyRef(int(rank), int(place)) for rank, place in pairs)
            case "nodes":
                happened = self.now - float(raw.get("ago", "0"))
                return tuple(events.LostNode(name, raw.get("detail", ""), happened) for name in text.split(","))
            case "groups":  # tp:0,1|tp:2,3
                parts = [group.split(":") for group in text.split("|")]
                return tuple(events.RankGroup(name, tuple(map(int, ranks.split(",")))) for name, ranks in parts)
            case "odd":
                return tuple(int(rank) for rank in text.split(",") if rank)
            case "sides":
                return tuple(tuple(int(rank) for rank in side.split(",")) for side in text.split("|") if side)
            case "workers":
                return tuple(name for name in text.split(",") if name)
            case "notes":
                return tuple(part for part in text.split("|") if part)
            case "generation":
                return int(text or self.machine.state.generation)
            case "verdict":
                return DrillVerdict(text)
            case "pid" | "rank" | "node_rank" | "spares" | "step" | "exit_code" | "digests" | "bytes_moved" | "transaction":
                return int(text or 0)
            case "claim" | "drill" | "compared" | "collectives" | "left_out":
                return int(text or 0)
            case "seconds" | "pause":
                return float(text or 0)
            case "store":
                return text or f"{self.machine.state.workers[raw['worker']].node}:7{raw['worker'][1:]:0>3}"
            case _:
                return text

    # -- output --------------------------------------------------------------------------------------------------------------------

    def _shown(self, commands: list[Command]) -> list[str]:
        for command in commands:
            for field in dataclasses.fields(command):
                self._hear(getattr(command, field.name))
        for result in self.machine.state.drills:
            self._hear(result.detail)
        return [f"< {self._show(command)}" for command in commands]

    def _show(self, command: Command) -> str:
        """A command on one line. Environments have a test of their own."""
        words = [type(command).__name__]
        for field in dataclasses.fields(command):
            value = getattr(command, field.name)
            if field.name == "environment":
                continue
            if isinstance(value, bool):
                words += [field.name] if value else []
            elif isinstance(value, tuple):
                words += [f"{field.name}={','.join(map(str, value))}"] if value else []
            elif field.name in ("worker", "node", "timer"):
                words.append(value)
            elif isinstance(value, str) and (" " in value or not value):
                words.append(f"{field.name}={self._quoted(value)}" if field.name != "text" else self._quoted(value))
            else:
                words.append(f"{field.name}={value:g}" if isinstance(value, float) else f"{field.name}={value}")
        return " ".join(words).replace("\n", "\\n")

    def _hear(self, value: object) -> None:
        if isinstance(value, Text) and value not in self.messages:
            self.messages[value] = value
            for argument in value.arguments.values():
                self._hear(argument)

    def _message(self, text: Text) -> str:
        arguments = ", ".join(f"{name}={self._argument(value)}" for name, value in text.arguments.items())
        return f"{text.code}({arguments})" if arguments else text.code

    def _argument(self, value: object) -> str:
        if isinstance(value, float):
            return f"{value:g}"
        text = str(value)
        return self._quoted(text) if " " in text or not text else text

    def _quoted(self, text: str) -> str:
        return self._message(self.messages[text]) if text in self.messages else f'"{self._plain(text)}"'

    def _plain(self, text: str) -> str:
        """Return a text with messages replaced by their codes and arguments."""
        for message in sorted(self.messages, key=len, reverse=True):  # a longer one may quote a shorter one
            if message in text:
                text = text.replace(message, self._message(self.messages[message]))
        return text

    def _show_incident(self, incident: Incident) -> list[str]:
        for text in (*incident.notes, *(part.detail for part in incident.ranks)):
            self._hear(text)
        length = f"{incident.seconds:.3f} s" if incident.seconds >= 0 else "open"
        kind = "planned" if incident.planned else "unplanned"
        lines = [
            f"= incident {incident.number}: {kind}, {incident.decision}, transaction {incident.transaction},"
            f" after step {incident.step}, {length}, {incident.bytes_moved} bytes, {incident.digests_verified} digests"
        ]
        lines += [
            f"=   rank {part.rank}: {part.cause} ({part.detail}), {part.old_worker} -> {part.new_worker or 'none'}"
            for part in incident.ranks
        ]
        lines += [f"=   {span.phase}: {span.seconds:.3f} s from {span.start:+.3f} s" for span in incident.spans]
        return lines + [f"=   note: {note}" for note in incident.notes]


def _options(words: list[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words)


def _needed(kind: Any, name: str) -> bool:
    field = next(field for field in dataclasses.fields(kind) if field.name == name)
    return field.default is dataclasses.MISSING


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        path = Path(argument)
        path.write_text(Scenario().run(path.read_text()))
