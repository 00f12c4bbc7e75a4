"""Check whether a node can do what a job needs, before it gets ranks for the first time or again. Each check runs in its
own process, without torch.

`runner.run_all` runs them; `python -m understudy.checks` does so for an agent, `understudy check-node` for a person. `base` is their port,
`registry` the list of them.
"""
