"""Settings of the process that a training may go by: the environment, torch's and numpy's switches. Read and set like names of a module.

Known limits: the modes that a `with` sets (gradients, autocast) are left to the script, whose frames a newcomer enters again. Variables of
the launcher are each worker's own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy
import torch

_LAUNCHER = ("UNDERSTUDY_", "TORCHELASTIC_", "MASTER_", "LOCAL_", "GROUP_", "ROLE_", "RANK", "WORLD_SIZE", "OMP_", "PYTEST_")
_SWITCHES: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "torch default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "torch precision of float32 products": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "torch deterministic algorithms": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    "torch threads": (torch.get_num_threads, torch.set_num_threads),
    "numpy floating-point errors": (numpy.geterr, lambda value: numpy.seterr(**value)),
}


class Settings:
    """A table of them by name."""

    of: Any = None

    def items(self) -> Mapping[str, Any]:
        """Return the present ones."""
        variables = {f"os.environ[{name!r}]": value for name, value in list(os.environ.items()) if not name.startswith(_LAUNCHER)}
        return {**{name: get() for name, (get, _) in _SWITCHES.items()}, **variables}

    def put(self, name: str, value: Any) -> None:
        """Set one. Raises `ValueError` for a name or a value that cannot be."""
        if name in _SWITCHES:
            _SWITCHES[name][1](value)
            return
        variable = name.removeprefix("os.environ['").removesuffix("']")
        if f"os.environ[{variable!r}]" != name or variable.startswith(_LAUNCHER) or not isinstance(value, str):
            raise ValueError(name)
        os.environ[variable] = value
