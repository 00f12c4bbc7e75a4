"""`python -m tests.contract.device_fault BACKEND`: is a real fault of a GPU seen for what it is? BACKEND: gloo
or nccl. For `scripts/gpu_check.sh`, on a GPU.

Jobs of two ranks and two spares, which may all share one GPU: a fault ends only the context of its own process. In the middle of a
step of rank 1

    nothing           happens: the reference
    kill              the process ends by SIGKILL: replaced; the redo is compared with what rank 0 had put into the collectives before
    lie               the same, and rank 0 counts its attempts in memory that is not tracked: the comparison names the difference
    illegal-address   a kernel writes to an address that is not mapped, once: the rank is replaced; the result is that of the reference
    assert            an assertion of a kernel fails, on whatever worker: the script's fault, whose traceback ends the job. A thread
                      of Gloo that frees a CUDA tensor may end the process first (SIGABRT): then the rank is replaced and fails again
    memory            more memory is asked for than there is: the script's fault as well
    hang              a kernel does not end, with NCCL only: torch's flight recorder shows which rank all others wait for; replaced

Exit code 0 if each ended so. `train FAULT FOLDER BACKEND` is what a rank runs.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import understudy

STEPS, STEP_OF_FAULT = 12, 6
NOWHERE = 'extern "C" __global__ void nowhere() { *(volatile int*)16 = 1; }'
FOREVER = 'extern "C" __global__ void forever(volatile int* zero) { while (*zero == 0) { } }'
LIMIT = 180.0  # seconds for one job
OUTCOMES = {  # exit code, how many incidents there may be, words of the output
    "nothing": (0, [0], ""),
    "kill": (0, [1], ""),
    "lie": (0, [1], "US4367"),  # `disputes`: the redo gives a collective something else
    "illegal-address": (0, [1], "IllegalAddress"),
    "assert": (1, [0], "device-side assert triggered"),
    "memory": (1, [0], "out of memory"),
    "hang": (0, [1], "US3002"),  # `hang`: one rank alone waits for no other
}


def fault(kind: str) -> None:
    """The device fails; whatever uses it next finds out."""
    if kind == "illegal-address":
        torch.cuda._compile_kernel(NOWHERE, "nowhere")(grid=(1, 1, 1), block=(1, 1, 1), args=[])
    elif kind == "assert":
        torch.zeros(4, device="cuda")[torch.tensor([9], device="cuda")]
    elif kind in ("kill", "lie"):
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "memory":
        torch.empty(2**44, dtype=torch.uint8, device="cuda")
    elif kind == "hang":
        zero = torch.zeros(1, dtype=torch.int32, device="cuda")
        torch.cuda._compile_kernel(FOREVER, "forever")(grid=(1, 1, 1), block=(1, 1, 1), args=[zero])


def train(kind: str, folder: Path, backend: str) -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    import devices

    device = devices.choose("cuda")
    job = understudy.join(backend=backend)
    torch.manual_seed(1)
    parts = (torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(256, 64))
    model = DistributedDataParallel(torch.nn.Sequential(*parts).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    job.register(model=model, optimizer=optimizer)

    libc = ctypes.CDLL(None)
    libc.calloc.restype = ctypes.c_void_p
    attempts = ctypes.c_int64.from_address(libc.calloc(1, 8))

    @job.step
    def step(number: int) -> None:
        batch = torch.randn(32, 64, generator=torch.Generator().manual_seed(1000 * number + job.rank)).to(device)
        loss = (model(batch) - batch).square().mean()
        if kind == "lie" and number == STEP_OF_FAULT:
            attempts.value += 1
            loss = loss * attempts.value
        total = loss.detach().clone()
        dist.all_reduce(total)
        total.item()  # both have come here
        if job.rank == 1 and number == STEP_OF_FAULT:
            strike(kind, folder / "struck")
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    while job.committed < STEPS:
        step(job.committed)
    state = [*model.parameters(), *(value for one in optimizer.state.values() for value in one.values())]
    numbers = b"".join(tensor.detach().cpu().contiguous().numpy().tobytes() for tensor in state)
    digests = {"state": hashlib.sha256(numbers).hexdigest(), "rng": torch.cuda.get_rng_state().tolist()}
    (folder / f"rank{job.rank}.json").write_text(json.dumps(digests))


def strike(kind: str, struck: Path) -> None:
    if kind == "assert" or (kind != "nothing" and not struck.exists()):
        struck.touch()
        fault(kind)


def ends(kind: str, folder: Path, backend: str) -> tuple[int, str, list[dict[str, Any]]]:
    """Exit code of a job with this fault, its output, and its incidents."""
    folder.mkdir()
    run = [sys.executable, "-m", "understudy.cli", "run", "--run-dir", str(folder / "run"), "--nproc-per-node", "2", "--spares", "2"]
    if kind == "hang":
        run += ["--hang-limit", "45"]  # more than `nccl_waits.STILL`
    if kind == "lie":
        run += ["--drill", "off"]  # after one that has passed, the job would be held
    script = [__file__, "train", kind, str(folder), backend]
    paths = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "TORCH_NCCL_ENABLE_TIMING": "1"}
    try:
        done = subprocess.run([*run, *script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT, env=environment)
    except subprocess.TimeoutExpired as error:
        return -1, f"it has not ended within {LIMIT:.0f} s\n{error.output}", []
    report = [sys.executable, "-m", "understudy.cli", "report", "--run-dir", str(folder / "run"), "--json"]
    reported = subprocess.run(report, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if reported.returncode:
        return -1, done.stdout + reported.stdout, []
    incidents = json.loads(reported.stdout)["incidents"]
    return done.returncode, done.stdout, incidents


def results(folder: Path) -> list[object]:
    """Of both ranks; something that is like nothing else where they are missing."""
    if not all((folder / f"rank{rank}.json").exists() for rank in range(2)):
        return [object()]
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


def main(backend: str) -> int:
    kinds = [kind for kind in OUTCOMES if kind != "hang" or backend == "nccl"]
    good = True
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(len(kinds)) as jobs:
        root = Path(name)
        for kind, (code, output, incidents) in zip(kinds, jobs.map(lambda kind: ends(kind, root / kind, backend), kinds), strict=True):
            expected, several, words = OUTCOMES[kind]
            if kind == "assert" and backend == "gloo":
                several = [0, 1, 2]  # see above
            fits = code == expected and len(incidents) in several and words in output
            if kind == "kill":
                fits = fits and incidents[0]["collectives"][0] > 0
            fits = fits and (kind == "nothing" or (root / kind / "struck").exists())
            if fits and code == 0:
                fits = kind == "lie" or results(root / kind) == results(root / "nothing")
            compared = [(one["grade"], one["collectives"], one["compared_bytes"]) for one in incidents]
            print(f"{kind}: exit code {code}, incidents {compared}: {'as it should be' if fits else 'WRONG'}", flush=True)
            if not fits or incidents:
                print(output[-6000:], flush=True)
            good = good and fits
    return 0 if good else 1


if __name__ == "__main__":
    if sys.argv[1] == "train":
        train(sys.argv[2], Path(sys.argv[3]), sys.argv[4])
    else:
        sys.exit(main(sys.argv[1]))
