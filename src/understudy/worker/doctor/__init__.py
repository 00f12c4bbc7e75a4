"""The doctor: tests the internals of torch that the worker relies on, and whatever else a job needs on a machine."""
