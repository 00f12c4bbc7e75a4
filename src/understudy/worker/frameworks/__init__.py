"""Adapters for frameworks that keep state between calls: DDP, FSDP2, pipelines, and those of other packages. `base` is their port."""
