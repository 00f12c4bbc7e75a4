"""Values of a script by name, which it changes while it trains: the value of `job.state`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from understudy.messages import script


class Namespace:
    """A namespace whose attributes are registered state: numbers, strings, tensors, arrays, and containers of them."""

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    def __getattr__(self, name: str) -> Any:  # for type checkers; attributes that exist are found before
        raise AttributeError(script.NO_SUCH_VALUE(name=name, known=", ".join(vars(self)) or "nothing"))

    if TYPE_CHECKING:

        def __setattr__(self, name: str, value: Any) -> None: ...

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).clear()
        vars(self).update(state)
