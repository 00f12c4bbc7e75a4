"""Checks of a node: what it must be able to do before it serves (again). Each is tried out in a process of its own, without torch.

`run_all` runs them; `python -m understudy.checks` does so for an agent, `understudy check-node` for a person. `base` is their port,
`registry` the list of them.
"""

from understudy.checks.options import Options
from understudy.checks.runner import Report, run_all

__all__ = ["Options", "Report", "run_all"]
