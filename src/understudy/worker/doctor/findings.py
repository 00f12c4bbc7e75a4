"""What the doctor's results mean for a job, and what to do about them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from understudy.common import tested
from understudy.common.finding import LIMITED, MISSING, OK, Finding
from understudy.messages import doctor
from understudy.worker.doctor import base
from understudy.worker.doctor.base import ProbeResult

RANGE = f"torch {tested.TORCH[0]} to {tested.TORCH[1]}"
FEWEST_FILES = 1024
FEWEST_PROCESSES = 1024
LEAST_SHARED = 256 << 20  # bytes; a container has 64 MiB by default


def of_torch(version: str, build: str) -> Finding:
    if tested.is_tested(version, tested.TORCH):
        return Finding("torch", OK, f"{version}, built for {build}")
    to_do = f"install {RANGE}, or go on if nothing below is missing"
    return Finding("torch", LIMITED, doctor.TORCH_NOT_TESTED(version=version, build=build, range=RANGE), to_do)


def of_internals(found: list[ProbeResult]) -> Iterator[Finding]:
    """Return a finding for each missing internal, or one for all."""
    missing = [one for one in found if one.status == base.MISSING]
    for one in missing:
        yield Finding(
            f"torch: {one.name}",
            MISSING if one.fatal else LIMITED,
            doctor.INTERNAL_MISSING(purpose=one.purpose, reason=one.reason, without=f"; {one.without}" * bool(one.without)),
            f"install {RANGE}" + ", if jobs need that" * (not one.fatal),
        )
    if not missing:
        count = sum(one.status == base.OK for one in found)
        yield Finding("torch's internals", OK, f"all {count} that are relied on are as they are needed")


def of_joining(way: str) -> Finding:
    return Finding("groups", OK, f"are joined again {way}")


def of_gpus(gpus: list[dict[str, Any]], nccl: str, build: str, vendors: list[str]) -> Iterator[Finding]:
    """Return the findings about GPUs. `vendors`: of the devices that the kernel has, whatever torch sees."""
    if gpus and build.startswith("ROCm"):
        yield Finding("ROCm", LIMITED, doctor.ROCM_UNTESTED(build=build), "compare runs with and without a loss: docs/evidence/gpu.md")
    if not gpus and vendors:
        to_do = "install a torch that is built for them, or look at the container's devices; or go on, on the CPU"
        yield Finding("GPUs", LIMITED, doctor.GPUS_NOT_SEEN(vendors=" and ".join(vendors), build=build), to_do)
    else:
        yield _seen(gpus, nccl, "RCCL" if build.startswith("ROCm") else "NCCL")


def _seen(gpus: list[dict[str, Any]], nccl: str, library: str) -> Finding:
    if not gpus:
        return Finding("GPUs", OK, "none: jobs run on the CPU, over Gloo")
    shown = ", ".join(f"{one['name']} ({one['memory'] / (1 << 30):.0f} GiB)" for one in gpus)
    if not nccl:
        return Finding(
            "GPUs", LIMITED, doctor.NO_NCCL(gpus=shown, library=library), f"install a torch that is built with {library}, or use Gloo"
        )
    return Finding("GPUs", OK, f"{shown}; {library} {nccl}")


def of_waits(waits: dict[str, bool], architecture: str) -> Finding:
    """Return the findings about waits: the basis of the watch for hangs, and what frees a rank that Gloo has forgotten."""
    if waits["seen"]:
        return Finding("waits for peers", OK, "can be seen and ended")
    if not waits["symbols"]:
        found, to_do = doctor.WAITS_NOT_SHOWN(architecture=architecture), f"use {RANGE} on x86_64 or aarch64"
    else:
        found, to_do = doctor.WAITS_HIDDEN(), "let processes read their own /proc/self/task/*/syscall and /proc/self/mem"
    return Finding("waits for peers", LIMITED, found, to_do)


def of_lifeline(works: bool) -> Finding:
    if works:
        return Finding("lifelines", OK, "a worker that ends is noticed at once")
    return Finding("lifelines", LIMITED, doctor.NO_ROBUST_LOCKS(), "use glibc 2.12 or newer, or musl, on a kernel with robust futexes")


def of_limits(limits: dict[str, int | None]) -> Iterator[Finding]:
    """Return the findings about limits. None: no limit, or it is not known."""
    files, processes, shared = limits["open files"], limits["processes"], limits["/dev/shm free"]
    few = files is not None and files < FEWEST_FILES
    to_do = f"raise it: ulimit -n {max(FEWEST_FILES, limits['open files at most'] or 0)}"
    if few:
        yield Finding("open files", LIMITED, doctor.FEW_FILES(files=files), to_do)
    else:
        yield Finding("open files", OK, f"at most {_shown(files)} in a process")
    if processes is not None and processes < FEWEST_PROCESSES:
        yield Finding("processes", LIMITED, doctor.FEW_PROCESSES(processes=processes), "raise it: ulimit -u")
    else:
        yield Finding("processes", OK, f"at most {_shown(processes)}, threads included")
    if shared is None:
        yield Finding("shared memory", LIMITED, doctor.NO_SHARED_MEMORY(), "mount a tmpfs there")
    elif shared < LEAST_SHARED:
        to_do = "give it more, as with docker run --shm-size=8g: loaders with workers put batches there"
        yield Finding("shared memory", LIMITED, doctor.LITTLE_SHARED_MEMORY(megabytes=shared >> 20), to_do)
    else:
        yield Finding("shared memory", OK, f"{shared >> 20} MiB free in /dev/shm")


def _shown(limit: int | None) -> str:
    return "any number" if limit is None else str(limit)
