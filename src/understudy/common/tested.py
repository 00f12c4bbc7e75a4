"""The versions of PyTorch and Python with which Understudy is tested.

The worker uses parts of torch that torch may change at any time (`worker.doctor.internals`), so another minor version may work or not.
`understudy doctor` tests every part that is used.
"""

from __future__ import annotations

import re
from importlib import metadata

from understudy.messages import tools

TORCH = ("2.13", "2.14")  # the first and the last minor version
PYTHON = ("3.11", "3.13")


def minor(version: str) -> tuple[int, int]:
    """Return major and minor version; (0, 0) for a text that is not a version."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def is_tested(version: str, tested: tuple[str, str]) -> bool:
    """Return whether a version is in a range such as `TORCH`."""
    return minor(tested[0]) <= minor(version) <= minor(tested[1])


def installed_torch() -> str:
    """Return the version of torch, "" if it is not installed. Does not import it."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return ""


def untested_torch() -> str:
    """Return a warning about the installed torch if it is another version; "" if not, or if there is none."""
    version = installed_torch()
    if not version or is_tested(version, TORCH):
        return ""
    return tools.TORCH_UNTESTED(version=version, first=TORCH[0], last=TORCH[1])
