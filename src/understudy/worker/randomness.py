"""The random number streams of a process: torch (CPU and CUDA), numpy's global one, Python's, and registered generators."""

from __future__ import annotations

import random
import sys
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import torch

from understudy.worker.unmoved import Unmoved, mark_of_numpy, mark_of_python

Streams = dict[str, bytes]


def _generator_bytes(state: torch.Tensor) -> bytes:
    return state.numpy().tobytes()


def _state_tensor(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def cuda_in_use() -> bool:
    """Whether this process has started CUDA."""
    return bool(torch.cuda.is_initialized()) and torch.cuda.is_available()  # type: ignore[no-untyped-call]


def _python_bytes() -> bytes:
    version, words, gauss = random.getstate()
    return array("I", words).tobytes() + repr((version, gauss)).encode()


def _numpy_bytes() -> bytes:
    state: Any = numpy.random.get_state()
    kind, key, position, has_gauss, gauss = state
    return bytes(key.tobytes()) + repr((kind, int(position), int(has_gauss), float(gauss))).encode()


class Randomness:
    """Reads and sets all streams at once. `generators`: further `torch.Generator` objects, by name."""

    def __init__(self) -> None:
        self.generators: dict[str, torch.Generator] = {}
        self.numpy_generators: dict[str, numpy.random.Generator] = {}
        self._python = Unmoved(_python_bytes, mark_of_python)
        self._numpy = Unmoved(_numpy_bytes, mark_of_numpy)
        self._moment: Streams | None = None  # the last capture, while nothing draws
        self._still = False

    def adopt(self, generators: list[torch.Generator]) -> None:
        """Adds those that are not known yet: a loader's, which draw the order of every epoch from where the one before left them."""
        for generator in generators:
            if not any(known is generator for known in self.generators.values()):
                self.generators[f"of a loader {len(self.generators)}"] = generator

    @contextmanager
    def still(self) -> Iterator[None]:
        """For code in which nothing draws: several captures in it are one. Setting streams is seen."""
        self._still = True
        try:
            yield
        finally:
            self._still, self._moment = False, None

    def capture(self) -> Streams:
        if self._moment is not None:
            return self._moment
        streams = self._capture()
        self._moment = streams if self._still else None
        return streams

    def _capture(self) -> Streams:
        streams = {"torch": _generator_bytes(torch.get_rng_state()), "python": self._python.get()}
        if "numpy.random" in sys.modules:
            streams["numpy"] = self._numpy.get()
        if cuda_in_use():
            streams["cuda"] = _generator_bytes(torch.cuda.get_rng_state())
        for name, generator in self.generators.items():
            streams[f"generator/{name}"] = _generator_bytes(generator.get_state())
        for name, numpy_generator in self.numpy_generators.items():
            from understudy.worker.codec import encode

            streams[f"numpy generator/{name}"] = encode(numpy_generator.bit_generator.state)
        return streams

    def restore(self, streams: Streams) -> None:
        """Sets every stream that `streams` names. Raises `KeyError` for a generator that is not registered here."""
        import ast

        self._moment = None
        for name, data in streams.items():
            if name == "torch":
                torch.set_rng_state(_state_tensor(data))
            elif name == "python":
                version, gauss = ast.literal_eval(data[2500:].decode())
                random.setstate((version, tuple(array("I", data[:2500])), gauss))
            elif name == "numpy":
                kind, pos, has_gauss, gauss_value = ast.literal_eval(data[2496:].decode())
                key = numpy.frombuffer(data[:2496], dtype=numpy.uint32)
                numpy.random.set_state((kind, key, pos, has_gauss, gauss_value))
            elif name == "cuda":
                torch.cuda.set_rng_state(_state_tensor(data))
            elif name.startswith("generator/"):
                self.generators[name.removeprefix("generator/")].set_state(_state_tensor(data))
            else:
                from understudy.worker.codec import decode

                self.numpy_generators[name.removeprefix("numpy generator/")].bit_generator.state = decode(data)
