"""What frameworks keep between calls, with one port (`base`): DDP, FSDP2, pipelines, and adapters of other packages."""
