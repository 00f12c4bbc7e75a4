"""Faults inside a worker, for `understudy chaos` and tests: they act at the named points of the runtime (`worker.hooks`)."""
