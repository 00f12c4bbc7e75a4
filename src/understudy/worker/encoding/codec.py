"""Encodes nested Python values with tensors as bytes, without pickle, to hand them to another worker.

Built on msgpack with a few extension types. Everything that `state_dict()` methods usually return is covered: numbers of any size,
strings, bytes, None, lists, tuples, dicts (also ordered), sets, tensors, numpy arrays and scalars, dtypes, devices and shapes. Anything
else raises `Unencodable`, which names the type and the place: a value that cannot be moved must be known before it is needed. Tensors
arrive on the CPU. Equal values have equal encodings, so the bytes also serve as snapshot and as the input of a digest (sets are sorted
for that).

Limits: 32 nested values of the extension types (all but plain lists and dicts), because a reader spends some 50 KB of its stack on
each, and at least 500 nested plain lists and dicts between two of these (msgpack's own limit, of which a reader's may be one less than
a writer's); text must be valid Unicode. A value beyond these limits is refused here, so that nothing is written that could not be read.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from typing import Any

import msgpack
import numpy
import torch

from understudy.messages import encoding
from understudy.worker.encoding.digests import flat_bytes

DEPTH = 32  # nested extension values
PLAIN_DEPTH = 500  # nested lists and dicts, at least


class Unencodable(TypeError):
    """A value of a type that cannot be moved to another worker."""


class Record:
    """A value that is encoded as its attributes by name: the base of workers' messages (`messages`), which decode themselves."""


_TENSOR, _ARRAY, _TUPLE, _INT, _SET, _ORDERED, _DTYPE, _DEVICE, _SIZE, _SCALAR, _FROZEN, _COMPLEX, _COUNTER = range(1, 14)


def _default(value: Any) -> msgpack.ExtType | dict[str, Any]:
    kind = type(value)
    if kind is tuple:  # as in every optimizer's settings; torch's own checks of an instance are slow
        return msgpack.ExtType(_TUPLE, encode(list(value)))
    if isinstance(value, Record):
        return vars(value)
    if isinstance(value, torch.Tensor):
        if kind not in (torch.Tensor, torch.nn.Parameter):
            raise Unencodable(encoding.NO_ENCODING_OF_SUBCLASS(type=f"{kind.__module__}.{kind.__qualname__}"))
        plain = value.detach().cpu().contiguous()
        head = (str(plain.dtype).removeprefix("torch."), list(plain.shape), flat_bytes(plain).numpy().tobytes())
        return msgpack.ExtType(_TENSOR, encode(list(head), flat=True))
    if isinstance(value, torch.Size):
        return msgpack.ExtType(_SIZE, encode(list(value)))
    if kind is int:
        return msgpack.ExtType(_INT, str(value).encode())
    if kind is set or kind is frozenset:
        return msgpack.ExtType(_SET if kind is set else _FROZEN, _sorted(value))
    if kind is OrderedDict:
        return msgpack.ExtType(_ORDERED, encode([list(pair) for pair in value.items()]))
    if kind is Counter:
        return msgpack.ExtType(_COUNTER, _sorted([list(pair) for pair in value.items()]))
    if kind is torch.dtype:
        return msgpack.ExtType(_DTYPE, str(value).removeprefix("torch.").encode())
    if kind is torch.device:
        return msgpack.ExtType(_DEVICE, str(value).encode())
    if kind is complex:
        return msgpack.ExtType(_COMPLEX, encode([value.real, value.imag]))
    if isinstance(value, numpy.ndarray) and value.dtype.kind in "biufcSU":
        return msgpack.ExtType(_ARRAY, encode([value.dtype.str, list(value.shape), value.tobytes()], flat=True))
    if isinstance(value, numpy.generic) and value.dtype.kind in "biufc":
        return msgpack.ExtType(_SCALAR, encode([value.dtype.str, value.tobytes()]))
    raise Unencodable(encoding.NO_ENCODING(type=f"{kind.__module__}.{kind.__qualname__}"))


def _sorted(items: Any) -> bytes:
    """Return the encoding of the list of `items` in the order of their encodings. Encodes each once, however deeply sets are nested."""
    header: bytes = msgpack.Packer().pack_array_header(len(items))
    return header + b"".join(sorted(encode(item) for item in items))


def _extension(code: int, data: bytes) -> Any:
    if code == _TENSOR:
        dtype, shape, content = decode(data)
        return (
            torch.frombuffer(bytearray(content), dtype=getattr(torch, dtype)).reshape(shape)
            if content
            else torch.empty(shape, dtype=getattr(torch, dtype))
        )
    if code == _ARRAY:
        kind, shape, content = decode(data)
        return numpy.frombuffer(bytearray(content), dtype=kind).reshape(shape)
    if code == _SCALAR:
        kind, content = decode(data)
        return numpy.frombuffer(content, dtype=kind)[0]
    if code == _TUPLE:
        return tuple(decode(data))
    if code == _INT:
        return int(data)
    if code == _SET:
        return set(decode(data))
    if code == _FROZEN:
        return frozenset(decode(data))
    if code == _ORDERED:
        return OrderedDict((key, value) for key, value in decode(data))
    if code == _COUNTER:
        return Counter(dict(decode(data)))
    if code == _DTYPE:
        return getattr(torch, data.decode())
    if code == _DEVICE:
        return torch.device(data.decode())
    if code == _SIZE:
        return torch.Size(decode(data))
    if code == _COMPLEX:
        return complex(*decode(data))
    raise ValueError(f"unknown extension {code} in an encoded value")


_SMALL = 1 << 20  # bytes; a packer keeps as much memory as it once needed


class _Packers(threading.local):
    """Packers, one for each thread: each has a buffer, and cannot be used for a part of the value that it is just packing."""

    idle: msgpack.Packer | None = None
    depth = 0  # of the value that is being encoded


_packers = _Packers()


def encode(value: Any, flat: bool = False) -> bytes:
    """Return the bytes of `value`. Raises `Unencodable`. `flat`: it is known not to be nested deeply."""
    depth = _packers.depth
    if depth > DEPTH:
        raise Unencodable(encoding.NESTED_TOO_DEEP(deepest=DEPTH))
    packer = _packers.idle or msgpack.Packer(default=_default, strict_types=True, use_bin_type=True)
    _packers.idle = None
    _packers.depth = depth + 1
    try:
        packed: bytes = packer.pack(value)
        if len(packed) >= PLAIN_DEPTH and not flat:  # less has no room for so many levels
            reader = msgpack.Unpacker(max_buffer_size=len(packed), read_size=len(packed))
            reader.feed(packed)
            reader.skip()
    except (ValueError, OverflowError) as error:  # its own limits
        if isinstance(error, msgpack.StackError) or "recursion limit" in str(error):
            raise Unencodable(encoding.LISTS_TOO_DEEP(deepest=PLAIN_DEPTH)) from error
        raise Unencodable(encoding.BEYOND_ENCODING(error=str(error))) from error
    finally:
        _packers.depth = depth
    if len(packed) < _SMALL:
        _packers.idle = packer
    return packed


def decode(data: bytes | memoryview) -> Any:
    """Return the value of bytes made by `encode`. Raises `ValueError` for anything else."""
    return msgpack.unpackb(data, ext_hook=_extension, strict_map_key=False, raw=False)
