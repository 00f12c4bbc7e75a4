"""Faults of a GPU, by the driver's own interface (libcuda), inside the worker that uses it.

These have not been run: there was no GPU when they were written.
"""

from __future__ import annotations

import ctypes

from understudy.chaos.base import Fault, Hits, Outcome, Values
from understudy.messages import faults

# Stores to address 0. Any GPU of the last ten years accepts this version.
_WILD_STORE = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry wild()
{
    .reg .b64 %address;
    mov.u64 %address, 0;
    st.global.u32 [%address], 1;
    ret;
}
\0"""


def _driver() -> ctypes.CDLL:
    """Load the driver. Raises `OSError` if there is no driver or no device."""
    driver = ctypes.CDLL("libcuda.so.1")
    count = ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        raise OSError(faults.NO_DEVICE())
    return driver


def why_not() -> str:
    try:
        _driver()
    except OSError as error:
        return faults.NO_GPU(reason=str(error))
    return ""


def _checked(code: int, what: str) -> None:
    if code != 0:
        raise RuntimeError(faults.CUDA_FAILED(call=what, error=code))


def _context(driver: ctypes.CDLL) -> None:
    """Use the primary context of the device that the calling thread uses, as torch does."""
    current = ctypes.c_void_p()
    _checked(driver.cuCtxGetCurrent(ctypes.byref(current)), "cuCtxGetCurrent")
    if not current.value:
        _checked(driver.cuDevicePrimaryCtxRetain(ctypes.byref(current), 0), "cuDevicePrimaryCtxRetain")
        _checked(driver.cuCtxSetCurrent(current), "cuCtxSetCurrent")


def illegal_access(values: Values) -> None:
    """Write to address 0 in a kernel; every later call of this process on the device fails."""
    driver = _driver()
    _context(driver)
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    _checked(driver.cuModuleLoadData(ctypes.byref(module), _WILD_STORE), "cuModuleLoadData")
    _checked(driver.cuModuleGetFunction(ctypes.byref(function), module, b"wild"), "cuModuleGetFunction")
    _checked(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None), "cuLaunchKernel")
    driver.cuCtxSynchronize()


def memory_taken(values: Values) -> None:
    """Allocate all remaining memory of the device, in ever smaller pieces, and keep it."""
    driver = _driver()
    _context(driver)
    size = 1 << 34
    while size >= 1 << 20:
        if driver.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(size)) != 0:
            size //= 2


FAULTS = (
    Fault(
        "gpu_illegal_access",
        "A kernel of the worker writes where it must not, so its device refuses everything. Not run yet: no GPU was at hand.",
        Hits.WORKER,
        Outcome.ENDS,
        inside=illegal_access,
        why_not=why_not,
    ),
    Fault(
        "gpu_out_of_memory",
        "All memory of the worker's device is taken, so its script fails. Not run yet: no GPU was at hand.",
        Hits.WORKER,
        Outcome.ENDS,
        inside=memory_taken,
        why_not=why_not,
    ),
)
