"""The state of a Hugging Face `Trainer` outside of model, optimizer and schedule. What recorded calls change is an entry of its own."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from understudy.worker.encoding.codec import decode, encode
from understudy.worker.integrations.attributes import PlainAttributes

_ELSEWHERE = frozenset({"log_history", "num_input_tokens_seen", "stateful_callbacks"})
_OF_PROCESS = frozenset({"is_local_process_zero", "is_world_process_zero"})
_DURATIONS = ("runtime", "per_second", "preparation_time")  # and what memory was in use
_SHARED = ("_total_loss_scalar", "_globalstep_last_logged", "current_gradient_accumulation_steps")
_OWN = ("_tr_loss", "current_flos")


class Flags:
    """Counters and flags, which are the same on all ranks."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self.norm: float | None = None  # of the gradients of the last update
        self.rate: float | None = None  # the learning rate of the last update

    def state_dict(self) -> dict[str, Any]:
        trainer = self._trainer
        return {
            "state": PlainAttributes(trainer.state, _ELSEWHERE | _OF_PROCESS).state_dict(),
            "control": PlainAttributes(trainer.control).state_dict(),
            "trainer": {name: getattr(trainer, name, None) for name in _SHARED},
            "last": [self.norm, self.rate],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        trainer = self._trainer
        PlainAttributes(trainer.state, _ELSEWHERE | _OF_PROCESS).load_state_dict(state["state"])
        PlainAttributes(trainer.control).load_state_dict(state["control"])
        vars(trainer).update(state["trainer"])
        self.norm, self.rate = state["last"]


class Rest:
    """What else the trainer has: a subclass may collect metrics in its own attributes, also in the step."""

    def __init__(self, trainer: Any, arguments: Collection[str]) -> None:
        """`arguments`: names of the arguments with which a trainer is made, such as its datasets."""
        self._attributes = PlainAttributes(trainer, {*_SHARED, *_OWN, *arguments})

    def state_dict(self) -> dict[str, Any]:
        return {"attributes": self._attributes.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._attributes.load_state_dict(state["attributes"])


class OwnState:
    """What differs from rank to rank: the sums since the last log, and what only rank 0 notes when it saves."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        sums = {name: getattr(self._trainer, name, None) for name in _OWN}
        return {"sums": sums, "callbacks": self._trainer.state.stateful_callbacks}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self._trainer).update(state["sums"])
        self._trainer.state.stateful_callbacks = state["callbacks"]


class Tokens:
    """The number of tokens that were seen, which is counted by a collective."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self._trainer.state.num_input_tokens_seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._trainer.state.num_input_tokens_seen = state["seen"]


class History:
    """The history of logs. It only grows, so it is encoded again only when it has. Durations are left out: a redo takes another time."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._encoded = b""
        self._length = -1

    def state_dict(self) -> dict[str, Any]:
        history = self._trainer.state.log_history
        if len(history) != self._length:
            self._encoded, self._length = encode(list(map(_without_durations, history))), len(history)
        return {"encoded": self._encoded}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set the history. Entries that are there already keep their durations."""
        self._encoded = state["encoded"]
        entries, there = decode(self._encoded), self._trainer.state.log_history
        kept = [mine if _without_durations(mine) == given else given for mine, given in zip(there, entries, strict=False)]
        self._trainer.state.log_history = kept + entries[len(kept) :]
        self._length = len(entries)


def _without_durations(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if not name.endswith(_DURATIONS) and "mem_" not in name}


class Callbacks:
    """The plain attributes of the callbacks, such as the patience of early stopping."""

    def __init__(self, trainer: Any) -> None:
        self._handler = trainer.callback_handler

    def state_dict(self) -> dict[str, Any]:
        return {"callbacks": [PlainAttributes(one).state_dict() for one in self._handler.callbacks]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for one, attributes in zip(self._handler.callbacks, state["callbacks"], strict=True):
            PlainAttributes(one).load_state_dict(attributes)
