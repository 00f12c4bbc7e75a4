"""What an exception shows about its rank's device: every kind of error, and what only looks like one."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from tests.outcomes import shows
from torch.utils.data import DataLoader, Dataset

from understudy.chaos.faults.device import KINDS
from understudy.worker.devices import device_errors
from understudy.worker.devices.device_errors import ACCELERATOR, DISK, DeviceError, Kind, judge
from understudy.worker.devices.device_in_use import Device, assumed, in_use

HINT = "\nSearch for `{name}' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information.\nCUDA kernel"
NCCL = (
    "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, {words} (run with NCCL_DEBUG=INFO for details), "
    "NCCL version 2.27.5\n{name}: {what}\nLast error:\n{last}"
)


class Numbered(torch.AcceleratorError):  # as torch makes it from C++, which Python cannot
    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.error_code = number


def kind(error: BaseException) -> Kind | None:
    found = judge(error)
    return found.kind if found is not None else None


@pytest.mark.parametrize("number", ACCELERATOR)
def test_number_name_and_text_lead_to_the_same(number: int) -> None:
    expected, name, words = ACCELERATOR[number]
    wanted = judge(Numbered(number, "in whatever language"))
    assert wanted is not None and wanted.kind is expected and wanted.name == f"{name} ({number})"
    assert judge(torch.AcceleratorError(f"CUDA error: {words}{HINT.format(name='cudaError' + name)}")) == wanted
    assert judge(torch.AcceleratorError(f"HIP error: something\nSearch for `hipError{name}' in ...")) == wanted
    assert judge(RuntimeError(f"CUDA error: {words}\nCUDA kernel errors might be reported at some other API call")) == wanted


def test_the_table_is_that_of_the_cuda_runtime() -> None:
    """Run where the library is, as it is in images with CUDA; the table was made so."""
    found = sorted(Path("/usr/local").glob("cuda-1[2-9]*/lib*/libcudart.so*"))
    if not found:
        pytest.skip("needs libcudart of CUDA 12 or newer")
    library = ctypes.CDLL(str(found[-1]))
    library.cudaGetErrorName.restype = library.cudaGetErrorString.restype = ctypes.c_char_p
    for number, (_, name, words) in ACCELERATOR.items():
        if number < 1000:  # others are of HIP only
            assert library.cudaGetErrorName(number).decode() == f"cudaError{name}"
            assert library.cudaGetErrorString(number).decode().startswith(words)


@pytest.mark.parametrize(
    "name, number",
    [("ECCNotCorrectable", 214), ("LaunchTimeOut", 702), ("OutOfMemory", 2), ("NotInitialized", 3)],
)
def test_hip_has_other_names_for_the_same(name: str, number: int) -> None:
    assert judge(torch.AcceleratorError(f"HIP error: words\nSearch for `hipError{name}' in")) == judge(Numbered(number, ""))


@pytest.mark.parametrize(
    "error, expected",
    [
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm( handle, opa, opb)`"), Kind.DEVICE_SUSPECT),
        (RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"), Kind.DEVICE_SUSPECT),
        (RuntimeError("CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm`"), Kind.SCRIPT),
        (RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED_CUDART"), Kind.DEVICE_SUSPECT),
        (RuntimeError("cuDNN error: CUDNN_STATUS_BAD_PARAM"), Kind.SCRIPT),
        (RuntimeError("CUDA error: HIPBLAS_STATUS_INTERNAL_ERROR when calling"), Kind.DEVICE_SUSPECT),
    ],
)
def test_statuses_of_libraries(error: BaseException, expected: Kind) -> None:
    found = judge(error)
    assert found is not None and found.kind is expected and not found.final


def nccl(name: str, words: str, last: str = "") -> dist.DistBackendError:
    return dist.DistBackendError(NCCL.format(name=name, words=words, what="Call failed.", last=last))


def test_nccl_reports_on_whose_side_it_was() -> None:
    failure = "Cuda failure {}'uncorrectable ECC error encountered'"
    for last in (failure.format(""), failure.format("214 ")):
        found = judge(nccl("ncclUnhandledCudaError", "unhandled cuda error", last))
        assert found == DeviceError(Kind.DEVICE_LOST, "ECCUncorrectable (214)", reaches_peers=True)
    found = judge(nccl("ncclUnhandledCudaError", "unhandled cuda error"))
    assert found is not None and found.kind is Kind.DEVICE_SUSPECT and found.reaches_peers and not found.final
    assert kind(nccl("ncclRemoteError", "remote process exited or there was a network error")) is Kind.COMMUNICATION
    assert kind(nccl("ncclSystemError", "unhandled system error", "socketProgress: Connection closed")) is Kind.COMMUNICATION
    assert kind(nccl("ncclInvalidUsage", "invalid usage")) is Kind.SCRIPT


@pytest.mark.parametrize("number", sorted(device_errors.FILES))
def test_a_disk_that_does_not_answer_is_a_device(number: int) -> None:
    assert judge(OSError(number, os.strerror(number), "/data/shard")) == DeviceError(Kind.DEVICE_LOST, errno.errorcode[number], part=DISK)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.ENOENT, errno.EACCES, errno.EPIPE, errno.ECONNRESET, errno.ENOMEM])
def test_a_disk_that_answers_no_is_none(number: int) -> None:
    assert judge(OSError(number, os.strerror(number), "/data/shard")) is None


class Broken(Dataset[int]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        raise OSError(errno.EIO, "Input/output error", "/data/shard")


def test_so_is_one_below_a_process_of_a_loader() -> None:
    with pytest.raises(OSError) as reported:
        list(DataLoader(Broken(), num_workers=1))
    assert judge(reported.value) == DeviceError(Kind.DEVICE_LOST, "EIO", part=DISK)


@shows(
    "out of memory, an assertion of a kernel, wrong arguments",
    "the script's fault: the job ends, no spare is used",
)
@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB."),
        Numbered(2, "CUDA error: out of memory"),
        Numbered(710, "CUDA error: device-side assert triggered"),
        Numbered(9, "CUDA error: invalid configuration argument"),
        MemoryError(),
    ],
)
def test_memory_assertions_and_wrong_arguments_are_the_scripts(error: BaseException) -> None:
    assert kind(error) is Kind.SCRIPT


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("a CUDA error: I have read about it"),
        ValueError("CUDA error: uncorrectable ECC error encountered"),
        RuntimeError("[enforce fail] unknown error"),
        RuntimeError("Connection closed by peer [127.0.0.1]:4711"),
        KeyError("NCCL"),
    ],
)
def test_what_only_looks_like_one_is_none(error: BaseException) -> None:
    found = judge(error)
    assert found is None or not found.speaks_of_device


def test_what_led_to_an_exception_counts_and_what_was_hidden_does_not() -> None:
    def raising(how: str) -> None:
        try:
            raise Numbered(719, "CUDA error: unspecified launch failure")
        except RuntimeError as error:
            if how == "from":
                raise KeyError("batch") from error
            if how == "while":
                raise KeyError("batch")  # noqa: B904
            raise KeyError("batch") from None

    found = []
    for how in ("from", "while", "hidden"):
        with pytest.raises(KeyError) as reported:
            raising(how)
        found.append(kind(reported.value))
    assert found == [Kind.DEVICE_SUSPECT, Kind.DEVICE_SUSPECT, None]


def test_each_error_that_chaos_makes_is_one() -> None:
    for make in KINDS.values():
        found = judge(make())
        assert found is not None and found.speaks_of_device


def test_other_packages_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def rule(error: BaseException) -> DeviceError | None:
        return DeviceError(Kind.DEVICE_LOST, "NeuronCoreGone") if "neuron" in str(error) else None

    monkeypatch.setattr(device_errors, "instances", lambda group, kind: [rule] if group == device_errors.GROUP else [])
    assert judge(ValueError("neuron core 3 is gone")) == DeviceError(Kind.DEVICE_LOST, "NeuronCoreGone")
    assert kind(OSError(errno.EIO, "")) is Kind.DEVICE_LOST


@pytest.mark.parametrize(
    "visible, local, expected",
    [
        ("0,1,2", "1", "gpu1"),
        ("4,6", "1", "gpu6"),
        ("7", "1", "gpu7"),
        ("GPU-5ad8,GPU-77", "0", "GPU-5ad8"),
        ("0,1", "2", ""),
        ("", "1", ""),
    ],
)
def test_the_device_is_the_one_of_the_local_rank(visible: str, local: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert assumed({"LOCAL_RANK": local}) == expected


def test_without_a_list_it_has_the_number_of_the_local_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert assumed({"LOCAL_RANK": "3"}) == "gpu3"


def test_a_device_that_is_used_is_asked_who_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fakes torch's answers: there is no GPU where this runs."""
    found = SimpleNamespace(uuid="5ad8c1b2-0000", pci_domain_id=0, pci_bus_id=0x3B, pci_device_id=0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: found)
    assert in_use({"LOCAL_RANK": "0"}) == Device("gpu6", ("GPU-5ad8c1b2-0000", "00000000:3b:00.0"))
