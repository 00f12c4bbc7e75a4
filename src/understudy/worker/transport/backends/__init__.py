"""What the process groups of a script run over: Gloo, NCCL, and what other packages add."""
