"""The backends of a script's process groups: Gloo, NCCL, and those of other packages."""
