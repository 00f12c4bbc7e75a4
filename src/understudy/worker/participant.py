"""Participants of a transaction: the one port of all parts that have something to do in the course of a step.

`step.order` has the participants in their order, with the reason for each place, and `step.transactions` and `step.votes` call them. A
transaction is begun once and attempted until its vote passes:

    begin       once, after the rank has joined the newest generation
    attempt     the function is about to run, for the first time or again
    before_vote its collectives are issued; the optimizer's step is still to come
    vote_fields the numbers for the vote, and how those of all ranks are reduced to one
    voted       the reduced numbers of all ranks
    passed      the vote has passed: the transaction will be committed
    failed      the attempt has raised; whether it is done again is not decided yet
    rollback    it is: back to the begin, while the groups have no peers
    again       the rank has joined the newest generation, and is about to attempt it again
    returned    the function has returned and its vote has passed; nothing is committed
    committed   the rank has moved on to the next transaction
    closed      the same, when everything is done for the commit

All of them are called on the main thread, on every rank that trains. On the spare of a drill (`Step.alone`) there are no votes, so what
follows one is not called either. Collectives may be issued in `before_vote` only, and only if all ranks issue the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from understudy.worker.encoding.messages import ScriptPosition


class Reduce(Enum):
    GREATEST = "greatest"
    EQUAL = "equal"  # the value that all ranks have voted; None if they differ
    ANY = "any"  # the bits that any rank has set


class VoteField(NamedTuple):
    """A number for the vote. `value`: 63 bits and a sign, of ANY 64 bits without one; None if this rank has none, and the others decide
    (EQUAL only).
    """

    name: str
    reduce: Reduce
    value: int | None


VoteResult = Mapping[str, int | None]  # by name of the field


@dataclass
class Step:
    """A transaction under way: a step or a section."""

    kind: str
    function: str
    arguments: Any
    place: ScriptPosition
    alone: bool = False  # on the spare of a drill: without peers, hence without votes
    closely: bool = False  # one of the first of this function, or with a power of two as number: checked closely
    reports: bool = False  # a section whose errors are reported, and that all ranks skip then
    skipped: bool = False  # the running attempt does not run the function
    attempt: int = 0
    carried: bool = False  # the last vote was of gradients that a later transaction goes on with
    values: Mapping[str, bytes] = field(default_factory=dict)  # registered values as of the begin, encoded
    result: Any = None  # of the function

    @property
    def before(self) -> str:
        """Return the place in the script right before this transaction, for a person and as a name."""
        return f"between the last transaction and {self.function}"


class Participant:
    """A participant that does nothing; the module describes when each method is called."""

    def begin(self, step: Step) -> None:
        """Handle the begin. May raise `UsageError`. A failure of a peer is no reason to raise: there is nothing yet that could be rolled
        back.
        """

    def attempt(self, step: Step) -> None: ...

    def before_vote(self, step: Step) -> None:
        """Handle that the collectives are issued. May raise `UsageError`, and what a collective raises."""

    def vote_fields(self) -> Sequence[VoteField]:
        """Return the fields. The same names in the same order on all ranks."""
        return ()

    def voted(self, result: VoteResult) -> None:
        """Handle the result, which is the same on all ranks. Must not raise for what one rank alone knows."""

    def passed(self, step: Step) -> None: ...

    def failed(self, step: Step, error: BaseException) -> None:
        """Handle a failed attempt. May raise an `UnderstudyError` in place of `error`, if that is its cause."""

    def rollback(self, step: Step) -> None:
        """Roll back. Raises `UsageError` if the state of the begin cannot be restored any more."""

    def again(self, step: Step) -> None: ...

    def returned(self, step: Step) -> None: ...

    def committed(self, step: Step) -> None: ...

    def closed(self, step: Step) -> None: ...
