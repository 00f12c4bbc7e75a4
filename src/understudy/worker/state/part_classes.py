"""The class of a part of a module, by its name. Another worker has the same class, but its part in this place may be of another class.

The class of a part is changed in place, so references to the part stay valid. No code of the class is run. Known limit: a class that is
defined in a function cannot be found by its name.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch

from understudy.messages import registered
from understudy.worker.encoding.codec import encode
from understudy.worker.errors import UnderstudyError


def named(kind: type) -> bytes:
    """Return the name of a class, for another worker."""
    return encode([kind.__module__, kind.__qualname__])


def _class_of(module: str, name: str) -> Any:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    return found


def is_found(kind: type) -> bool:
    """Return whether another worker that runs the same script finds the class by its name."""
    return _class_of(kind.__module__, kind.__qualname__) is kind


def give_class(part: torch.nn.Module, entry: str, value: Sequence[Any]) -> None:
    """Change the class of a part. `value`: module and name of the class. Raises `UnderstudyError` if this worker has no such class of
    modules.
    """
    if len(value) != 2 or not all(type(one) is str for one in value):
        raise UnderstudyError(registered.PART_MISSING(entry=entry))
    module, name = value
    kind = _class_of(module, name)
    if [type(part).__module__, type(part).__qualname__] == [module, name]:
        return
    if not isinstance(kind, type) or not issubclass(kind, torch.nn.Module):
        raise UnderstudyError(registered.PART_MISSING(entry=entry))
    try:
        part.__class__ = kind
    except TypeError as error:  # of another layout
        raise UnderstudyError(registered.PART_MISSING(entry=entry)) from error
