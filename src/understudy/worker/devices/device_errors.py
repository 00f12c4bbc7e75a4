"""Classifies exceptions: which mean that this rank's device has failed, and which only look like it.

A device that fails in a live process appears as an exception of any call of the script. `judge` finds by type and number its kind:

    DEVICE_LOST      the hardware or its driver has failed: no process can use the device, or it corrupts what it computes
    DEVICE_SUSPECT   the device refuses to go on, which a fault of the device or of the script's own kernels may have caused
    COMMUNICATION    the link or the peer, not this rank's device
    SCRIPT           a fault of the program, memory that is exhausted included: another device would do the same

The orchestrator decides whose fault a `DEVICE_SUSPECT` is (`core/device_faults.py`): the same error on another device is the script's.

Sources: the numbers and their meaning are those of cudaError_t in the CUDA Runtime API reference ("Data types used by CUDA Runtime")
and of hipError_t in HIP's `hip_runtime_api.h`, which has the same numbers for the same faults; `CUBLAS_STATUS_*` and `CUDNN_STATUS_*`
of the cuBLAS and cuDNN references; `ncclResult_t` of NCCL's API reference. torch gives the number as `AcceleratorError.error_code`; if
it does not (older versions, and exceptions that libraries raise), the name of the error in the text decides, and at last its words
(`cudaGetErrorString`).

Other packages add rules by entry points of the group `understudy.device_errors`: functions from an exception to a `DeviceError`, or
None for what they do not know. They are called first.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import FunctionType
from typing import Any

import torch

from understudy.extensions import instances

GROUP = "understudy.device_errors"


class Kind(StrEnum):
    """The kind of failure that an exception reports."""

    DEVICE_LOST = "device lost"
    DEVICE_SUSPECT = "device suspect"
    COMMUNICATION = "communication"
    SCRIPT = "script"


@dataclass(frozen=True)
class DeviceError:
    """The result of `judge`.

    `name`: of the error, the same for the same fault in every process. `final`: every later call of this process on the device fails as
    well. `reaches_peers`: it may come from what a lost peer has left in the middle. `part`: of the node, if that has failed and not the
    rank's device.
    """

    kind: Kind
    name: str
    final: bool = True
    reaches_peers: bool = False
    part: str = ""

    @property
    def speaks_of_device(self) -> bool:
        """Return whether this rank cannot go on with its device."""
        return self.kind in (Kind.DEVICE_LOST, Kind.DEVICE_SUSPECT)


_L, _S, _P = Kind.DEVICE_LOST, Kind.DEVICE_SUSPECT, Kind.SCRIPT

ACCELERATOR: Mapping[int, tuple[Kind, str, str]] = {
    # number: its kind, the name after "cudaError" or "hipError", the words of cudaGetErrorString
    2: (_P, "MemoryAllocation", "out of memory"),
    3: (_S, "InitializationError", "initialization error"),
    46: (_L, "DevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable"),
    53: (_S, "PriorLaunchFailure", "unspecified launch failure in prior launch"),
    100: (_L, "NoDevice", "no CUDA-capable device is detected"),
    101: (_S, "InvalidDevice", "invalid device ordinal"),
    102: (_L, "DeviceNotLicensed", "device doesn't have valid Grid license"),
    127: (_L, "StartupFailure", "startup failure in cuda runtime"),
    205: (_S, "MapBufferObjectFailed", "mapping of buffer object failed"),
    206: (_S, "UnmapBufferObjectFailed", "unmapping of buffer object failed"),
    214: (_L, "ECCUncorrectable", "uncorrectable ECC error encountered"),
    216: (_S, "DeviceAlreadyInUse", "exclusive-thread device already in use by a different thread"),
    220: (_L, "NvlinkUncorrectable", "uncorrectable NVLink error detected during the execution"),
    226: (_S, "Contained", "Invalid access of peer GPU memory over nvlink or a hardware error"),
    304: (_S, "OperatingSystem", "OS call failed or operation not supported on this OS"),
    700: (_S, "IllegalAddress", "an illegal memory access was encountered"),
    702: (_S, "LaunchTimeout", "the launch timed out and was terminated"),
    709: (_S, "ContextIsDestroyed", "context is destroyed"),
    710: (_P, "Assert", "device-side assert triggered"),
    714: (_S, "HardwareStackError", "hardware stack error"),
    715: (_S, "IllegalInstruction", "an illegal instruction was encountered"),
    716: (_S, "MisalignedAddress", "misaligned address"),
    717: (_S, "InvalidAddressSpace", "operation not supported on global/shared address space"),
    718: (_S, "InvalidPc", "invalid program counter"),
    719: (_S, "LaunchFailure", "unspecified launch failure"),
    802: (_L, "SystemNotReady", "system not yet initialized"),
    805: (_L, "MpsConnectionFailed", "MPS client failed to connect to the MPS control daemon or the MPS server"),
    806: (_L, "MpsRpcFailure", "the remote procedural call between the MPS server and the MPS client failed"),
    807: (_L, "MpsServerNotReady", "MPS server is not ready to accept new MPS client requests"),
    810: (_L, "MpsClientTerminated", "the MPS client has been terminated by the server"),
    911: (_L, "ExternalDevice", "an async error has occured in external entity outside of CUDA"),
    999: (_S, "Unknown", "unknown error"),
    1052: (_S, "RuntimeMemory", "runtime memory call returned error"),  # of HIP only, as is the next
    1053: (_S, "RuntimeOther", "runtime call other than memory returned error"),
}
HIP_NAMES: Mapping[str, int] = {  # that differ from those of CUDA
    "OutOfMemory": 2,
    "NotInitialized": 3,
    "ECCNotCorrectable": 214,
    "ContextAlreadyInUse": 216,
    "MapFailed": 205,
    "UnmapFailed": 206,
    "LaunchTimeOut": 702,
}
NCCL: Mapping[str, Kind] = {
    "ncclUnhandledCudaError": _S,
    "ncclSystemError": Kind.COMMUNICATION,
    "ncclInternalError": Kind.COMMUNICATION,
    "ncclRemoteError": Kind.COMMUNICATION,
    "ncclInvalidArgument": _P,
    "ncclInvalidUsage": _P,
}
DISK = "disk"  # a part of the node: all ranks there share it
PEERS = frozenset({205, 206, 220, 226})  # of ACCELERATOR: faults in memory that ranks share with each other
FILES = frozenset({errno.EIO, errno.ESTALE, errno.ENODEV, errno.ENXIO, errno.EREMOTEIO, errno.EUCLEAN})

_NAMES = {name: number for number, (_, name, _) in ACCELERATOR.items()} | dict(HIP_NAMES)
_ACCELERATOR_NAME = re.compile(r"\b(?:cudaError|hipError)([A-Z]\w*)")
_ACCELERATOR_TEXT = re.compile(r"\b(?:CUDA|HIP|Cuda|Hip) (?:error|failure)(?: (?P<number>\d+))?:? '?(?P<words>[^\n]*)")
_LIBRARY = re.compile(r"\b(?P<library>CUBLAS|CUDNN|CUSOLVER|CUSPARSE|HIPBLAS|ROCBLAS|HIPSOLVER)_STATUS_(?P<status>[A-Z_]+)")
_LIBRARY_FAILED = ("NOT_INITIALIZED", "EXECUTION_FAILED", "INTERNAL_ERROR", "MAPPING_ERROR")  # the others mean a mistake of the caller
_NCCL = re.compile(r"\b(nccl(?:UnhandledCuda|System|Internal|Remote)Error|ncclInvalid(?:Argument|Usage))\b")
_ERRNO = re.compile(r"\[Errno (\d+)\]")
_TORCH_TIMEOUT = re.compile(r"\bNCCL (?:timeout|communicator was aborted)\b")

Rule = Callable[[BaseException], DeviceError | None]


def judge(error: BaseException) -> DeviceError | None:
    """Return what `error`, or its cause, reports about this rank's device; None if it is about something else.

    The first of a chain of exceptions that is about a device decides, from the last one raised to the first. Raises `ValueError` for an
    error of another package.
    """
    for one in _chain(error):
        for rule in (*_others(), *_RULES):
            if (found := rule(one)) is not None:
                return found
    return None


def _others() -> list[Rule]:
    found: list[Any] = instances(GROUP, FunctionType)
    return found


def _chain(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    seen: set[int] = set()
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or (one.__context__ if not one.__suppress_context__ else None)


def _of_number(number: int) -> DeviceError | None:
    if number not in ACCELERATOR:
        return None
    kind, name, _ = ACCELERATOR[number]
    return DeviceError(kind, f"{name} ({number})", reaches_peers=number in PEERS)


def _accelerator(error: BaseException) -> DeviceError | None:
    """Classify errors of CUDA and HIP, from torch and from libraries below it."""
    if not isinstance(error, RuntimeError):
        return None
    number = getattr(error, "error_code", None)
    if isinstance(error, torch.AcceleratorError) and isinstance(number, int) and not isinstance(number, bool):
        return _of_number(number) or DeviceError(Kind.SCRIPT, f"error {number}")
    return _of_text(str(error))


def _of_text(text: str) -> DeviceError | None:
    for name in _ACCELERATOR_NAME.findall(text):
        if name in _NAMES:
            return _of_number(_NAMES[name])
    if (match := _ACCELERATOR_TEXT.search(text)) is None:
        return None
    if match["number"] is not None and (found := _of_number(int(match["number"]))):
        return found
    message = match["words"].strip()
    fitting = [number for number, (_, _, words) in ACCELERATOR.items() if message.startswith(words)]
    return _of_number(max(fitting, key=lambda number: len(ACCELERATOR[number][2]))) if fitting else None


def _library(error: BaseException) -> DeviceError | None:
    """Classify statuses of cuBLAS, cuDNN and the like."""
    found = _LIBRARY.search(str(error)) if isinstance(error, RuntimeError) else None
    if found is None:
        return None
    kind = Kind.DEVICE_SUSPECT if found["status"].startswith(_LIBRARY_FAILED) else Kind.SCRIPT
    return DeviceError(kind, f"{found['library']}_STATUS_{found['status']}", final=False)


def _nccl(error: BaseException) -> DeviceError | None:
    """Classify errors of NCCL: it reports that a call to CUDA failed on this rank, and perhaps which; all else is between ranks."""
    text = str(error)
    if not isinstance(error, RuntimeError) or (found := _NCCL.search(text)) is None:
        return DeviceError(Kind.COMMUNICATION, "NCCL timeout") if isinstance(error, RuntimeError) and _TORCH_TIMEOUT.search(text) else None
    kind = NCCL[found[1]]
    if kind is not Kind.DEVICE_SUSPECT:
        return DeviceError(kind, found[1])
    cause = _of_text(text)
    return replace(cause, reaches_peers=True) if cause is not None else DeviceError(kind, found[1], final=False, reaches_peers=True)


def _memory(error: BaseException) -> DeviceError | None:
    return DeviceError(Kind.SCRIPT, "out of memory") if isinstance(error, torch.OutOfMemoryError | MemoryError) else None


def _files(error: BaseException) -> DeviceError | None:
    """Classify errors of a disk that does not answer. An error about a connection is none."""
    if not isinstance(error, OSError) or isinstance(error, ConnectionError | TimeoutError):
        return None
    number = error.errno
    if number is None and (match := _ERRNO.findall(str(error))):  # torch raises that of a process of a DataLoader again, as a text
        number = int(match[-1])
    return DeviceError(Kind.DEVICE_LOST, errno.errorcode[number], part=DISK) if number in FILES else None


_RULES: tuple[Rule, ...] = (_memory, _nccl, _library, _accelerator, _files)
