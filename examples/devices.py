"""Choose the device on which a rank computes, and the settings with which a GPU computes the same bits every time."""

from __future__ import annotations

import os

import torch


def choose(name: str) -> torch.device:
    """Return this rank's device for `auto`, `cpu` or `cuda`. Several ranks may share a GPU (see scripts/gpu_check.sh)."""
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    count = torch.cuda.device_count()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % count)
    torch.cuda.set_device(device)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # sums in the same order, whatever else is running
    torch.use_deterministic_algorithms(True)
    if int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > count and "NCCL_MULTI_RANK_GPU_ENABLE" not in os.environ:
        # NCCL refuses two ranks of one host on one GPU. Ranks that claim different hosts use the network.
        os.environ.setdefault("NCCL_HOSTID", f"rank-{os.environ['RANK']}")
    return device
