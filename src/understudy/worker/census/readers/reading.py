"""The result of a reader, and helpers that several readers share."""

from __future__ import annotations

import functools
import sys
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, NamedTuple

from understudy.worker.census.leaves import FIXED
from understudy.worker.census.walk import Path
from understudy.worker.encoding.digests import digest_bytes
from understudy.worker.script_files import is_of_script

Part = tuple[Path, Any]
_SHORT = 64  # characters of a text that is its own mark


class Reading(NamedTuple):
    """The reading of one object: its own `mark`, and its `parts`."""

    mark: Hashable
    parts: Iterator[Part] | tuple[Part, ...] = ()


CARRIED = Reading("carried")  # of an attribute that the state of its object has, by another name
NOTHING = Reading(None)  # of things that are no state: a new one, or another in its place, is no change


def attributes(path: Path, **parts: Any) -> tuple[Part, ...]:
    """Return parts by name, without those that are None."""
    return tuple((path.then("attribute", name), part) for name, part in parts.items() if part is not None)


def numbered(path: Path, parts: Iterable[Any]) -> Iterator[Part]:
    """Return parts by number."""
    return ((path.then("item", number), part) for number, part in enumerate(parts))


def script_hooks(path: Path, hooks: Any) -> list[Part]:
    """Return the script's hooks in a table, in their order: torch's own, and ours, come and go."""
    return list(numbered(path, filter(is_hook_of_script, (hooks or {}).values())))


def is_hook_of_script(hook: Any) -> bool:
    """Return whether a hook is neither torch's own nor ours."""
    plain = getattr(hook, "__func__", hook)
    while isinstance(plain, functools.partial):
        plain = plain.func
    module = getattr(plain, "__module__", None) or type(plain).__module__
    return not str(module).startswith(("torch.", "understudy."))


def is_class_of_script(kind: type) -> bool:
    """Whether a class is defined in a module of the script."""
    return is_of_script(getattr(sys.modules.get(kind.__module__), "__file__", None) or "")


def fixed_mark(value: Any) -> Hashable:
    """Return a mark of a plain value, which cannot change."""
    if isinstance(value, float | complex):
        return repr(value)  # a NaN is unchanged
    if isinstance(value, str | bytes) and len(value) > _SHORT:
        return text_mark(value)
    return value  # type: ignore[no-any-return]


def text_mark(text: str | bytes) -> int:
    """Return a digest of any text or bytes."""
    return digest_bytes(text.encode(errors="surrogatepass") if isinstance(text, str) else text)


def is_fixed(value: Any) -> bool:
    """Return whether the value is its own mark."""
    return type(value) in FIXED
