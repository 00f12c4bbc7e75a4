"""The doctor: tries each of torch's internals that the worker relies on, and checks what else a job needs of a machine."""
