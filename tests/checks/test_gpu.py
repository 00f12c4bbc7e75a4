"""`checks.gpu`: how a program's report about devices is judged, and that program's parts on torch's CPU device. No GPU is needed, and none
is tested: programs in the place of `worker.doctor.devices` print what it would.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.message_texts import has, refused

from understudy.checks import gpu
from understudy.checks.base import Result, Verdict
from understudy.checks.gpu import Gpu
from understudy.checks.options import Options
from understudy.messages import node_checks
from understudy.messages.base import Message
from understudy.worker.doctor import devices

A, B, C = ("a" * 64, "b" * 64, "c" * 64)


def device(number: int, *digests: str, model: str = "H100", **more: Any) -> dict[str, Any]:
    found = {"device": f"cuda:{number}", "model": model, "digests": {"float32": list(digests)}, "seconds": {"float32": 1.0}}
    return {**found, "bytes": 1 << 30, "wrong": 0, "error": "", **more}


def judged(*found: dict[str, Any], built: str = "CUDA 13.0") -> Result:
    return printed(json.dumps({"built": built, "devices": found}))


def printed(text: str) -> Result:
    return Gpu(Options(), command=(sys.executable, "-c", f"print({text!r})")).run()


def test_all_the_same() -> None:
    found = judged(device(0, A, A), device(1, A, A), device(2, B, B, model="A100"))
    assert (found.verdict, found.detail) == (Verdict.PASSED, node_checks.GPUS_COMPUTE(models="2 x H100, 1 x A100"))
    assert ("cuda:0 float32", 200.0, "ms") in [(figure.name, figure.value, figure.unit) for figure in found.figures]


@pytest.mark.parametrize(
    ("found", "message", "arguments"),
    [
        ([device(0, A, A, B)], node_checks.GPU_UNSTEADY, {"device": "cuda:0", "results": 2, "repeats": 3, "kind": "float32"}),
        (
            [device(0, A, A), device(1, B, B), device(2, A, A)],
            node_checks.GPUS_DIFFER,
            {"devices": "cuda:1", "kind": "float32", "others": 2, "model": "H100"},
        ),
        (
            [device(0, A, A), device(1, B, B)],
            node_checks.NO_MAJORITY,
            {"devices": "cuda:0, cuda:1", "results": 2, "kind": "float32", "model": "H100"},
        ),
        ([device(0, A, A, wrong=3)], node_checks.GPU_MEMORY_WRONG, {"device": "cuda:0", "words": 3}),
        (
            [device(0, error="RuntimeError: CUDA error\nmore")],
            node_checks.GPU_ERROR,
            {"device": "cuda:0", "error": "RuntimeError: CUDA error"},
        ),
        ([], node_checks.GPUS_UNSEEN, {"built": "CUDA 13.0"}),
    ],
)
def test_what_speaks_against_a_device(found: list[dict[str, Any]], message: Message, arguments: dict[str, object]) -> None:
    result = judged(*found)
    assert result.verdict is Verdict.FAILED
    assert has(result.detail, message, **arguments)


def test_a_program_that_ends_otherwise() -> None:
    def ends(code: str) -> str:
        return Gpu(Options(), command=(sys.executable, "-c", code)).run().detail

    assert ends("import sys; sys.exit('no driver')") == node_checks.PROGRAM_FAILED(how="ended with exit code 1", last=": no driver")
    assert has(ends("import os; os.abort()"), node_checks.PROGRAM_FAILED, how="was ended by signal 6")


@pytest.mark.parametrize("text", ["", "[]", '{"built": "", "devices": 5}', json.dumps({"built": "", "devices": [device(0, "not hex")]})])
def test_what_is_no_answer(text: str) -> None:
    with pytest.raises(ValueError):  # a check may raise what it likes
        printed(text)


def test_without_a_gpu_it_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "nvidiactl").touch()
    assert Gpu(Options(), places=tmp_path).missing() == node_checks.NO_GPU()
    (tmp_path / "nvidia0").touch()
    assert Gpu(Options(), places=tmp_path).missing() == ""


def test_without_torch_it_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kfd").touch()
    monkeypatch.setattr(gpu, "find_spec", lambda name: None)
    assert Gpu(Options(), places=tmp_path).missing() == node_checks.NO_TORCH(python=sys.executable)


def test_the_program_finds_no_device_here() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    found = Gpu(Options()).run()
    assert found.verdict is Verdict.FAILED and has(found.detail, node_checks.GPUS_UNSEEN)


def examined(**more: int) -> dict[str, Any]:
    return devices.examined(torch.device("cpu"), 3, 5000, **{"side": 32, "block": 1024, **more})


def test_its_parts_on_a_cpu() -> None:
    one, other = examined(), examined()
    assert one["error"] == "" and one["bytes"] == 4096 and one["wrong"] == 0
    assert set(one["digests"]) == set(devices.KINDS)
    assert one["digests"] == other["digests"]
    assert all(len(digests) == 3 and len(set(digests)) == 1 for digests in one["digests"].values())
    assert judged({**one, "device": "cuda:0"}).verdict is Verdict.PASSED


def test_memory_that_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    add = torch.add

    def spoilt(*given: Any, out: torch.Tensor) -> torch.Tensor:
        found = add(*given, out=out)
        found[17] ^= 8
        return found

    monkeypatch.setattr(torch, "add", spoilt)
    assert examined()["wrong"] == 8  # one word in each of four blocks, with both patterns


def test_a_product_that_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest change of one element of one repeat's last product."""
    multiply, calls = torch.Tensor.__matmul__, list[None]()

    def spoilt(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        found = multiply(one, other)
        calls.append(None)
        if len(calls) == 6:
            found[3, 5] = torch.nextafter(found[3, 5], torch.tensor(9.0))
        return found

    monkeypatch.setattr(torch.Tensor, "__matmul__", spoilt)
    assert len(set(examined()["digests"]["float32"])) == 2


def test_a_device_that_fails_is_reported() -> None:
    assert "Error" in devices.examined(torch.device("meta"), 2, 0, 32, 1024)["error"]


def test_one_device_is_all_that_the_program_sees() -> None:
    shown = "import json, os; print(json.dumps({'built': os.environ['CUDA_VISIBLE_DEVICES'], 'devices': []}))"
    found = Gpu(Options(devices=("gpu1", "GPU-5ad8")), command=(sys.executable, "-c", shown)).run()
    assert has(found.detail, node_checks.GPUS_UNSEEN, built="1,GPU-5ad8")


@pytest.mark.parametrize("name", ["1", "gpu", "cuda:1", "0000:3b:00.0", "gpu1,gpu2"])
def test_what_is_no_name_of_a_gpu_is_refused(name: str) -> None:
    with refused(ValueError, node_checks.NO_DEVICE_NAME, name=name):
        Options(devices=(name,))
