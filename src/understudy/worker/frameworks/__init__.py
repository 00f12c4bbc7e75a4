"""What frameworks keep between calls, behind one port (`base`): DDP, FSDP2, pipelines, and what other packages add."""
