"""Checks of a node: what it must be able to do before it serves (again). Each is tried out in a process of its own, without torch.

`runner.run_all` runs them; `python -m understudy.checks` does so for an agent, `understudy check-node` for a person. `base` is their port,
`registry` the list of them.
"""
