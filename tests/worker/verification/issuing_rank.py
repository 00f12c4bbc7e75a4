"""One rank that issues collectives, is interrupted, and does its transaction again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from tests.worker.steps import step_of
from torch import nn

from understudy.worker.collectives.interception import Collective
from understudy.worker.errors import GenerationAborted
from understudy.worker.generation.context import RankContext
from understudy.worker.progress import Progress
from understudy.worker.state.registry import State
from understudy.worker.verification.entries import RedoCompared
from understudy.worker.verification.issued import IssuedCollectives
from understudy.worker.verification.trails import Mark, marks_in


class Group:
    def __init__(self, name: str, rank: int = 0) -> None:
        self.group_name, self._rank = name, rank

    def rank(self) -> int:
        return self._rank


class Rank:
    """Rank 0, in transaction 7."""

    def __init__(self) -> None:
        self.net = nn.Linear(2, 2)
        state = State()
        state.register("net", self.net)
        self.over = False  # the generation
        self.sent: list[bytes] = []  # to its buddies
        self.takes = True  # what the connections do with that
        self.sent_with_next: list[bytes] = []
        channel = SimpleNamespace(tell=self.tell, tell_with_next=self.sent_with_next.append)
        membership: Any = SimpleNamespace(aborted=lambda: self.over, channel=channel)
        self.another_way = ""  # in which a framework issues collectives in a redo
        held: Any = SimpleNamespace(state=state, frameworks=SimpleNamespace(redoes_otherwise=lambda: self.another_way))
        self.progress = Progress(0, 2, transaction=7, function="train")
        self.issued = IssuedCollectives(RankContext(self.progress, membership, held, SimpleNamespace()))  # type: ignore[arg-type]
        self.step = step_of()
        self.issued.begin(self.step)
        self.issued.attempt(self.step)

    def tell(self, data: bytes) -> bool:
        self.sent.append(data)
        return self.takes

    @property
    def marks(self) -> list[Mark]:
        return [mark for data in self.sent for mark in marks_in(data, self.progress.transaction)]

    def call(self, tensor: torch.Tensor, group: str = "0", operator: str = "allreduce_", **more: Any) -> None:
        names = {"allreduce_": "tensors", "broadcast_": "tensors", "_allgather_base_": "input_tensor", "recv_": "tensors"}
        arguments = {names[operator]: [tensor], **more}
        self.issued.call(Collective(operator, Group(group), arguments), lambda: None)  # type: ignore[arg-type]

    def interrupted(self) -> None:
        self.issued.failed(self.step, GenerationAborted())
        self.over = True
        self.issued.rollback(self.step)
        self.step.attempt += 1
        self.over = False
        self.issued.again(self.step)
        self.issued.attempt(self.step)

    def votes(self) -> tuple[str, RedoCompared]:
        self.issued.before_vote(self.step)
        return self.issued.found.difference, self.issued.found.compared
