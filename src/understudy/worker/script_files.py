"""Decides which source files belong to the script: those that are neither in the standard library, nor installed, nor Understudy's.

Packages may be installed outside this environment's own folders: a virtual environment with `--system-site-packages`, a user's own
folder, a distribution's `dist-packages`. A folder of that name identifies them all.
"""

from __future__ import annotations

import functools
import sysconfig
from pathlib import Path

_LIBRARY = (
    Path(__file__).resolve().parents[1],  # Understudy's own
    *(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")),
)
_INSTALLED = {"site-packages", "dist-packages"}
# Most modules are decided by these, without reading the disk.
_PREFIXES = tuple(
    sorted({f"{folder}/" for folder in (*_LIBRARY, *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")))})
)


@functools.cache
def is_of_script(file: str) -> bool:
    """Return whether a source file is the user's own."""
    if not file or file.startswith(("<", *_PREFIXES)):
        return False
    path = Path(file).resolve()
    return not any(path.is_relative_to(folder) for folder in _LIBRARY) and not set(path.parts) & _INSTALLED
