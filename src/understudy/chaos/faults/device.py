"""Faults of a device in a live process: a rank sees them as an exception of torch and its libraries.

The exceptions are raised here, with the texts of real ones, so that they can be tried in a job without a GPU: the worker reacts in the same
way. A fault of the hardware itself needs a device (`gpu`).
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from understudy.chaos.base import Fault, Hits, Outcome, Parameter, Values


def _accelerator(words: str) -> Exception:
    torch: Any = sys.modules["torch"]  # imported in a worker; the command that lists the faults does without
    error: Exception = torch.AcceleratorError(f"CUDA error: {words}\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n")
    return error


KINDS: Mapping[str, Callable[[], Exception]] = {
    "ecc": lambda: _accelerator("uncorrectable ECC error encountered"),
    "unavailable": lambda: _accelerator("CUDA-capable device(s) is/are busy or unavailable"),
    "illegal-access": lambda: _accelerator("an illegal memory access was encountered"),
    "launch-failure": lambda: _accelerator("unspecified launch failure"),
    "cublas": lambda: RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`"),
    "nccl": lambda: RuntimeError(
        "NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled cuda error (run with NCCL_DEBUG=INFO for details)\n"
        "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 214 'uncorrectable ECC error encountered'"
    ),
    "disk": lambda: OSError(errno.EIO, os.strerror(errno.EIO), "/data/shard-0"),
}


def device_error(values: Values) -> None:
    raise KINDS[str(values["kind"])]()


FAULTS = (
    Fault(
        "device_error",
        "The worker's device fails: what runs there raises the error of its library.",
        Hits.WORKER,
        Outcome.REPLACED,
        inside=device_error,
        parameters=(Parameter("kind", "ecc", "which error", choices=tuple(KINDS)),),
    ),
)
