"""`python -m understudy.worker.doctor.devices --repeats N --share S`: tests the results and the memory of every GPU, and prints them as
JSON.

For `understudy check-node` (`checks.gpu`), which does not import torch itself and judges the results. Each device computes the same
matrix products several times: fixed seed, inputs made on the CPU, deterministic settings, in the precisions that training uses. Only
digests are printed. Then a share of its free memory is written with a pattern that depends on the address, and with its complement, and
read back on the device.

Known limits: nothing of this has run on a real GPU yet; the tests run it on torch's CPU device. Products by cuBLAS are the same bits
when they are repeated on one device with one library; that they are the same on all devices of one model is expected, but NVIDIA does
not promise it, so devices that differ here must be compared again, one by one, before one is given back.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch

SIDE = 2048
SEED = 20240229
KINDS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
BLOCK = 256 << 20  # bytes
MULTIPLIER = 0x1E3779B97F4A7C15  # odd


def main() -> None:
    parser = argparse.ArgumentParser(prog="understudy.worker.doctor.devices", description=__doc__)
    parser.add_argument("--repeats", type=int, required=True, help="of each product")
    parser.add_argument("--share", type=float, required=True, help="of each device's free memory")
    options = parser.parse_args()
    answer = os.dup(1)
    os.dup2(2, 1)  # output of torch and its parts must not get into the JSON
    deterministic()
    devices = [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
    found = {"built": built(), "devices": [examined(device, options.repeats, room(device, options.share)) for device in devices]}
    with os.fdopen(answer, "w") as out:
        json.dump(found, out)
    sys.stderr.flush()


def built() -> str:
    """Return the accelerator for which this torch is built; "" if only CPUs."""
    return f"CUDA {torch.version.cuda}" if torch.version.cuda else f"ROCm {torch.version.hip}" if torch.version.hip else ""


def deterministic() -> None:
    """Make the whole process deterministic, before a device is used."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


def examined(device: torch.device, repeats: int, size: int, side: int = SIDE, block: int = BLOCK) -> dict[str, Any]:
    """Examine a device. Never raises: a device that fails is a result. `size`: bytes of its memory to be tested."""
    found: dict[str, Any] = {
        "device": str(device),
        "model": model(device),
        "digests": {},
        "seconds": {},
        "bytes": 0,
        "wrong": 0,
        "error": "",
    }
    try:
        for kind in KINDS:
            began = time.monotonic()
            found["digests"][kind] = list(products(device, kind, repeats, side))
            found["seconds"][kind] = time.monotonic() - began
        found["bytes"], found["wrong"] = memory(device, max(0, size // block), block)
    except Exception as error:
        found["error"] = f"{type(error).__name__}: {error}"
    return found


def model(device: torch.device) -> str:
    if device.type != "cuda":
        return device.type
    properties = torch.cuda.get_device_properties(device)
    return f"{properties.name} ({properties.major}.{properties.minor}, {properties.multi_processor_count} processors)"


def room(device: torch.device, share: float) -> int:
    """Return that share of the free memory in bytes, with some left for the work itself."""
    free = torch.cuda.mem_get_info(device)[0]
    return int(min(share * free, free - 4 * BLOCK))


def products(device: torch.device, kind: str, repeats: int, side: int) -> Iterator[str]:
    """Return the digest of each repeat: three products in a row, each scaled down, so that nothing overflows."""
    generator = torch.Generator().manual_seed(SEED)
    one, other = (torch.randn(side, side, generator=generator).to(KINDS[kind]).to(device) for _ in range(2))
    for _ in range(repeats):
        found = one
        for _ in range(3):
            found = (found @ other) * (1.0 / side)
        yield hashlib.sha256(found.cpu().view(torch.uint8).numpy().tobytes()).hexdigest()


def memory(device: torch.device, count: int, block: int) -> tuple[int, int]:
    """Return the bytes tested in `count` blocks, and the number of words that were wrong."""
    words = block // 8
    offsets = torch.arange(words, dtype=torch.int64, device=device) * MULTIPLIER
    blocks: list[torch.Tensor] = []
    wrong = 0
    for complement in (False, True):
        for number in range(count):
            if number == len(blocks):
                blocks.append(torch.empty(words, dtype=torch.int64, device=device))
            torch.add(offsets, number, out=blocks[number])
            if complement:
                torch.bitwise_not(blocks[number], out=blocks[number])
        for number, found in enumerate(blocks):
            wanted = offsets + number
            wrong += int(torch.count_nonzero(found != (torch.bitwise_not(wanted) if complement else wanted)))
    return count * block, wrong


if __name__ == "__main__":
    main()
