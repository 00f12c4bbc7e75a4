"""Makes the script's modules come first, as under `python SCRIPT`, also if one has the name of a module that the worker has imported
before.

A script whose folder has a `queue.py` means that one by `import queue`. The worker has imported torch by then, and with it the `queue`
of the standard library, which Python would take from `sys.modules`. So such modules are removed from it right before the script runs;
modules that have imported them keep them. Modules that an interpreter imports by itself before any script stay, since `import` returns
Python's own module under `python SCRIPT`, too.

Known limits: a library that imports such a module only while the script runs gets the script's, as it always would.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder

_OURS = "understudy"


def give_way(folder: str) -> list[str]:
    """Remove from `sys.modules` the modules for which the script's `folder` has one of the same name. Returns the names."""
    tops = {name.partition(".")[0] for name in sys.modules}
    found = sorted(name for name in tops - {_OURS, "__main__"} if _is_in(folder, name))
    found = [name for name in found if name not in _of_interpreter()] if found else []
    for name in list(sys.modules):
        if name.partition(".")[0] in found:
            del sys.modules[name]
    return found


def _is_in(folder: str, name: str) -> bool:
    """Return whether an import of `name` would find another module there than the one that was imported."""
    if BuiltinImporter.find_spec(name) is not None or FrozenImporter.find_spec(name) is not None:
        return False
    spec = PathFinder.find_spec(name, [folder])
    mine = getattr(sys.modules.get(name), "__file__", None)
    found = spec is not None and spec.origin is not None
    return found and (mine is None or os.path.realpath(str(spec and spec.origin)) != os.path.realpath(mine))


def _of_interpreter() -> set[str]:
    """Return the modules that Python imports by itself. Another interpreter is asked: here it is not known any more."""
    asked = subprocess.run([sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True, check=False)
    return set(asked.stdout.split())
