"""Read one object of any kind: a mark that differs where the object itself does, and the parts that hang on it, each with the step to it.

A reader knows a type and what derives from it. An object written in Python has its attributes; of what no reader
knows the references are followed that the garbage collector knows (`gc.get_referents`). These miss what an object keeps in C, so iterators,
files, generators of random numbers and hashes have readers of their own.

Kept small by four rules: a function is its closure, its defaults and its attributes, never its globals; a class is its own names, without
bases; modules end the walk; so do classes and functions of installed packages, and objects of packages that only report or run things.

No code of the script is run: `type(x)` is asked, not `x.__class__`, and a container is read by the methods of its base class.
"""

from __future__ import annotations

import array
import contextvars
import functools
import gc
import io
import itertools
import mmap
import os
import pathlib
import random
import sys
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from enum import Enum
from typing import Any, NamedTuple

import numpy
import torch

from understudy.worker.census.leaves import FIXED, LARGEST, LONGEST, SAMPLE, mark, state_of
from understudy.worker.census.walk import Path, attributes_of, items_of
from understudy.worker.encoding.codec import encode
from understudy.worker.encoding.digests import digest, digest_bytes
from understudy.worker.script_files import is_of_script
from understudy.worker.state.attributes import is_plain_attribute
from understudy.worker.state.history import has_history

Part = tuple[Path, Any]
_SHORT = 64  # characters of a text that is its own mark
_PLACES = 512  # positions of an iterator that are read
# Objects of these packages report, or run things, and are no state of a training; understudy's own are followed elsewhere.
_ENDS = frozenset(
    [
        *("understudy", "tqdm", "rich", "wandb", "mlflow", "tensorboard", "tensorboardX", "loguru", "matplotlib", "pytest", "_pytest"),
        *("logging", "multiprocessing", "concurrent", "asyncio", "subprocess", "socket", "selectors", "ssl", "http", "urllib", "warnings"),
        *("importlib", "inspect", "ast", "typing", "re", "tempfile", "signal", "contextlib", "abc", "argparse", "unittest", "threading"),
        *("_thread", "zoneinfo", "datetime", "time", "traceback", "linecache", "ctypes"),
    ]
)
_WALKED_OF_TORCH = tuple(f"torch.{name}" for name in ("utils.data", "optim", "amp", "quasirandom", "nn", "distributed.algorithms"))
_OF_OPTIMIZERS = frozenset({"state", "param_groups", "defaults", "step", "found_inf", "grad_scale"})
_HOOKS_OF_MODULES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_HOOKS_OF_OPTIMIZERS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
_HOOKS_OF_TENSORS = ("_backward_hooks", "_post_accumulate_grad_hooks")
_OF_EVERY_MODULE = frozenset(torch.nn.Module().__dict__)
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_IN_C = io.IOBase.__mro__[1]  # from which files derive that are written in C


class Reading(NamedTuple):
    """Hold what one object is: `mark` of itself, `parts` that hang on it."""

    mark: Hashable
    parts: Iterator[Part] | tuple[Part, ...] = ()


def read_object(path: Path, thing: Any) -> Reading:
    """Return what stands at `path`, of whatever kind."""
    kind = type(thing)
    name = kind.__qualname__
    if kind in FIXED:
        return Reading((name, _fixed(thing)))
    for reader in _readers_of(kind):  # type: ignore[arg-type]
        reading = reader(path, thing)
        if reading is not None:
            return Reading((name, reading.mark), reading.parts)
    if kind.__module__ == "understudy.worker.api.job":
        return Reading(name, tuple(part for part in attributes_of(path, thing) if not str(part[0].steps[-1][1]).startswith("_")))
    if _is_end(kind):
        return Reading(name)
    if kind.__dictoffset__ or any("__slots__" in vars(part) for part in kind.__mro__):
        return Reading(name, attributes_of(path, thing))
    return Reading(name, _referents(path, thing))


def read_base(path: Path, thing: Any) -> Reading:
    """Return what a base class of an object keeps beside the attributes that a look has read: items of a dict, hooks of a module."""
    name = type(thing).__qualname__
    if isinstance(thing, torch.Tensor):
        return Reading(None, (*_of_tensor(path, thing), *_gradient(path, thing)))  # its content is carried
    for reader in _readers_of(type(thing)):  # type: ignore[arg-type]
        reading = reader(path, thing)
        if reading is not None:
            own = {part_path for part_path, _ in attributes_of(path, thing)}
            return Reading((name, reading.mark), tuple(part for part in reading.parts if part[0] not in own))
    return Reading(name)


def read_covered(path: Path, thing: Any) -> Reading:
    """Return what hangs on a thing that is registered and is not carried with it: hooks, attributes that no entry has."""
    if isinstance(thing, torch.Tensor):
        return Reading(None, _of_tensor(path, thing))
    if isinstance(thing, torch.nn.Module):
        return _module(path, thing)
    if isinstance(thing, torch.optim.Optimizer):
        parts = _optimizer(path, thing).parts
        return Reading(None, tuple((way, part) for way, part in parts if way.steps[-1][0] == "item" or not is_plain_attribute(part)))
    if isinstance(thing, torch.utils.data.DataLoader):
        return _loader(path, thing)
    return Reading(None)


def _fixed(value: Any) -> Hashable:
    if isinstance(value, float | complex):
        return repr(value)  # a NaN is what it was
    if isinstance(value, str | bytes) and len(value) > _SHORT:
        return digest_bytes(value.encode(errors="surrogatepass") if isinstance(value, str) else value)
    return value  # type: ignore[no-any-return]


def _is_end(kind: type) -> bool:
    module = kind.__module__ if isinstance(kind.__module__, str) else ""
    package = module.partition(".")[0]
    if package == "torch":
        return not module.startswith(_WALKED_OF_TORCH)
    return package in _ENDS


def _named(path: Path, **parts: Any) -> tuple[Part, ...]:
    return tuple((path.then("attribute", name), part) for name, part in parts.items() if part is not None)


def _numbered(path: Path, parts: Any) -> Iterator[Part]:
    return ((path.then("item", number), part) for number, part in enumerate(parts))


def _referents(path: Path, thing: Any) -> Iterator[Part]:
    for number, part in enumerate(gc.get_referents(thing)):
        if not isinstance(part, types.ModuleType) and part is not type(thing):
            yield path.then("place", f"{number} {type(part).__qualname__}"), part


# -- functions and classes -----------------------------------------------------------------------------------------------------


def _function(path: Path, function: types.FunctionType) -> Reading:
    code = function.__code__
    own = [(path.then("attribute", name), value) for name, value in function.__dict__.items()]
    if not is_of_script(code.co_filename):
        return Reading((function.__module__, function.__qualname__), tuple(own))
    defaults = function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    given = [*zip(names, defaults, strict=True), *(function.__kwdefaults__ or {}).items()]
    parts = [(path.then("attribute", name), value) for name, value in given]
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            parts.append((path.then("cell", name), cell.cell_contents))
        except ValueError:  # not set yet
            continue
    parts += own
    return Reading((code.co_filename, function.__qualname__, code.co_firstlineno), tuple(parts))


def _method(path: Path, method: types.MethodType) -> Reading:
    return Reading(None, _named(path, __func__=method.__func__, __self__=method.__self__))


def _built_in(path: Path, function: types.BuiltinFunctionType | types.MethodWrapperType) -> Reading:
    bound = None if isinstance(function.__self__, types.ModuleType | type) else function.__self__
    return Reading(function.__qualname__, _named(path, __self__=bound))


def _class(path: Path, kind: type) -> Reading:
    module = sys.modules.get(kind.__module__)
    if not is_of_script(getattr(module, "__file__", None) or ""):
        return Reading(kind.__qualname__)
    names = ((name, value) for name, value in list(vars(kind).items()) if not name.startswith(("__", "_abc_")))
    return Reading(kind.__qualname__, ((path.then("attribute", name), value) for name, value in names))


def _wrapped(path: Path, method: Any) -> Reading:
    return Reading(None, _named(path, __func__=method.__func__))


def _property(path: Path, thing: property) -> Reading:
    return Reading(None, _named(path, fget=thing.fget, fset=thing.fset))


def _partial(path: Path, partial: functools.partial[Any]) -> Reading:
    return Reading(None, (*_named(path, func=partial.func, args=partial.args, keywords=partial.keywords), *attributes_of(path, partial)))


def _cached(path: Path, function: Any) -> Reading:
    """Of `functools.cache` and `lru_cache`: the results that are kept."""
    tables = [part for part in gc.get_referents(function) if type(part) is dict and part is not function.__dict__]
    results = [
        (key, gc.get_referents(result) if type(result).__name__ == "_lru_list_elem" else result)
        for table in tables
        for key, result in list(table.items())
    ]
    return Reading(len(results), (*_named(path, __wrapped__=function.__dict__.get("__wrapped__")), *_results(path, results)))


def _results(path: Path, results: list[tuple[Any, Any]]) -> Iterator[Part]:
    for number, (key, result) in enumerate(results[:LONGEST]):
        yield path.then("item", key if type(key) in (str, int) else number), result


# -- containers ----------------------------------------------------------------------------------------------------------------


def _dict(path: Path, thing: dict[Any, Any]) -> Reading:
    if len(thing) > LONGEST:
        return Reading((len(thing), _sample(list(dict.values(thing)))))
    return Reading(None, itertools.chain(items_of(path, thing), _own_attributes(path, thing)))


def _sequence(path: Path, thing: Any) -> Reading:
    base = next(kind for kind in (list, tuple, deque) if isinstance(thing, kind))
    items = list(base.__iter__(thing))
    if len(items) > LONGEST:
        return Reading((len(items), _sample(items)))
    return Reading(len(items), itertools.chain(_numbered(path, items), _own_attributes(path, thing)))


def _set(path: Path, thing: Any) -> Reading:
    fixed = sorted(repr(item) for item in list(thing) if type(item) in FIXED)
    return Reading((len(thing), digest_bytes("\0".join(fixed).encode(errors="surrogatepass"))))


def _sample(items: list[Any]) -> int:
    """Of a long list some items: fixed ones by value, others by type alone."""
    some = items[:: max(1, len(items) // SAMPLE)]
    return digest_bytes(repr([item if type(item) in FIXED else type(item) for item in some]).encode(errors="surrogatepass"))


def _view(path: Path, thing: types.MappingProxyType[Any, Any]) -> Reading:
    return Reading(None, ((path.then("item", str(key)), value) for key, value in list(thing.items())))


def _own_attributes(path: Path, thing: Any) -> Iterator[Part]:
    return attributes_of(path, thing) if type(thing).__flags__ & _HEAP_TYPE else iter(())


# -- numbers -------------------------------------------------------------------------------------------------------------------


def _of_tensor(path: Path, tensor: torch.Tensor) -> tuple[Part, ...]:
    hooks = [part for name in _HOOKS_OF_TENSORS for part in _hooks(path.then("attribute", name), getattr(tensor, name, None))]
    held = () if type(tensor).__module__.startswith("torch.distributed") else attributes_of(path, tensor)
    return (*hooks, *held)


def _gradient(path: Path, tensor: torch.Tensor) -> tuple[Part, ...]:
    return _named(path, grad=tensor.grad if tensor.is_leaf or tensor.retains_grad else None)


def _tensor(path: Path, tensor: torch.Tensor) -> Reading:
    parts = [*_of_tensor(path, tensor), *_gradient(path, tensor)]
    if has_history(tensor):
        return Reading((tensor.dtype, tensor.shape), tuple(parts))
    if tensor.layout is torch.sparse_coo:
        return Reading(tensor.shape, (*parts, *_named(path, indices=tensor._indices(), values=tensor._values())))
    if tensor.layout is not torch.strided or tensor.device.type == "meta":
        return Reading((tensor.dtype, tensor.shape, tensor._version), tuple(parts))
    return Reading((tensor.requires_grad, _content(tensor.detach())), tuple(parts))


def _content(tensor: torch.Tensor) -> Hashable:
    if type(tensor) is not torch.Tensor:  # of a subclass, whose own code would run
        tensor = tensor.as_subclass(torch.Tensor) if not hasattr(tensor, "_local_tensor") else tensor._local_tensor
    if tensor.numel() * tensor.element_size() > LARGEST or tensor.device.type != "cpu":
        return mark(tensor)
    return tensor.dtype, tensor.shape, digest(tensor.clone().contiguous())  # numpy may see the copy alone: see `leaves`


def _array(path: Path, values: numpy.ndarray[Any, Any]) -> Reading:
    plain = values.view(numpy.ndarray) if type(values) is not numpy.ndarray else values
    if plain.dtype.hasobject:
        return Reading(plain.shape, _numbered(path, list(plain.flat[:LONGEST])))
    return Reading(mark(plain), _own_attributes(path, values) if type(values) is not numpy.ndarray else ())


def _stream(path: Path, stream: Any) -> Reading:
    return Reading(digest_bytes(encode(list(state_of(stream)))), _own_attributes(path, stream))


def _buffer(path: Path, thing: Any) -> Reading:
    data = memoryview(thing).cast("B")
    return Reading((len(data), digest_bytes(bytes(data[:: max(1, len(data) // LARGEST)]))))


# -- what moves ----------------------------------------------------------------------------------------------------------------


def _iterator(path: Path, iterator: Any) -> Reading:
    """By what it would be copied from: its sources, and where it stands in them."""
    try:
        _, *state = iterator.__reduce__()
    except Exception:  # it cannot be copied, or (from Python 3.14 on) none of its kind can
        return Reading(repr(iterator) if type(iterator) is itertools.count else None, _referents(path, iterator))
    return Reading(None, ((path.then("place", f"{number} state"), part) for number, part in enumerate(_flat(state))))


def _flat(state: Any) -> list[Any]:
    """Of tuples in tuples the parts, some of them."""
    found: list[Any] = []
    for part in state:
        found += _flat(part) if type(part) is tuple else [part]
        if len(found) > _PLACES:
            return found[:_PLACES]
    return found


def _generator(path: Path, generator: Any) -> Reading:
    kind = "gi" if isinstance(generator, types.GeneratorType) else "cr"
    frame, code = getattr(generator, f"{kind}_frame"), getattr(generator, f"{kind}_code")
    if frame is None or not is_of_script(code.co_filename):
        return Reading(frame is None)
    return Reading(frame.f_lasti, tuple((path.then("attribute", name), value) for name, value in frame.f_locals.items()))


def _in_memory(path: Path, file: Any) -> Reading:
    if file.closed:
        return Reading("closed")
    content = file.getvalue()
    return Reading((file.tell(), digest_bytes(content.encode(errors="surrogatepass") if isinstance(content, str) else content)))


def _file(path: Path, file: Any) -> Reading:
    """Where a file that is read stands; text is read ahead by some thousand characters."""
    try:
        return Reading(os.lseek(file.fileno(), 0, os.SEEK_CUR) if not file.closed and file.readable() and not file.isatty() else None)
    except (OSError, ValueError):
        return Reading(None)


def _hash(path: Path, thing: Any) -> Reading | None:
    if not callable(getattr(type(thing), "hexdigest", None)) or getattr(thing, "digest_size", 0) == 0:
        return None
    return Reading(thing.hexdigest())


def _of_thread(path: Path, thing: threading.local) -> Reading:
    return Reading(None, attributes_of(path, thing))


def _context(path: Path, variable: contextvars.ContextVar[Any]) -> Reading:
    return Reading(None, _named(path, value=variable.get(None)))


# -- torch ---------------------------------------------------------------------------------------------------------------------


def _module(path: Path, module: torch.nn.Module) -> Reading:
    held = vars(module)
    parts = [part for name in _HOOKS_OF_MODULES for part in _hooks(path.then("attribute", name), held.get(name))]
    if not type(module).__module__.startswith(("torch.nn.parallel", "torch.distributed")):
        parts += [
            (path.then("attribute", name), value)
            for name, value in list(held.items())
            if name not in _OF_EVERY_MODULE and type(value) is not torch.Tensor and not is_plain_attribute(value)
        ]
    for table in (module._modules, module._parameters):
        parts += [(path.then("attribute", name), part) for name, part in list(table.items()) if part is not None]
    return Reading(None, tuple(parts))


def _optimizer(path: Path, optimizer: torch.optim.Optimizer) -> Reading:
    held = vars(optimizer)
    parts = [part for name in _HOOKS_OF_OPTIMIZERS for part in _hooks(path.then("attribute", name), held.get(name))]
    if not type(optimizer).__module__.startswith("torch.distributed"):
        parts += [
            (path.then("attribute", name), value)
            for name, value in list(held.items())
            if name not in _OF_OPTIMIZERS and not name.startswith("_")
        ]
    return Reading(None, tuple(parts))


def _loader(path: Path, loader: Any) -> Reading:
    held = [(name, value) for name, value in list(vars(loader).items()) if not name.startswith("_") and "sampler" not in name]
    return Reading(None, tuple((path.then("attribute", name), value) for name, value in held if name != "generator"))


def _hooks(path: Path, hooks: Any) -> list[Part]:
    """Those of the script, in their order: torch's own, and ours, come and go."""
    found = [hook for hook in (hooks or {}).values() if is_hook_of_script(hook)]
    return list(_numbered(path, found))


def is_hook_of_script(hook: Any) -> bool:
    """Whether it is neither torch's own nor ours."""
    plain = getattr(hook, "__func__", hook)
    while isinstance(plain, functools.partial):
        plain = plain.func
    module = getattr(plain, "__module__", None) or type(plain).__module__
    return not str(module).startswith(("torch.", "understudy."))


def _by_type(path: Path, thing: Any) -> Reading:
    return Reading(None)


def _text(path: Path, thing: Any) -> Reading:
    return Reading(str(thing))


def _enum(path: Path, member: Enum) -> Reading:
    return Reading(member.name)


_Reader = Callable[[Path, Any], Reading | None]
_ITERATORS: tuple[type, ...] = (
    *(itertools.cycle, itertools.chain, itertools.islice, itertools.count, itertools.permutations, itertools.combinations),
    *(itertools.product, itertools.accumulate, itertools.groupby, itertools.repeat, itertools.starmap, itertools.takewhile),
    *(itertools.combinations_with_replacement, itertools.compress, itertools.dropwhile, itertools.filterfalse, itertools.zip_longest),
    *(itertools.pairwise, zip, map, filter, enumerate, reversed, type(iter(lambda: 0, 1)), type(reversed([]))),
    *map(type, (iter([]), iter(()), iter({}), iter({}.items()), iter({}.values()), iter(set()), iter(range(1)), iter(""), iter("é"))),
    *map(type, (iter(b""), iter(bytearray()), reversed({}), reversed(range(1)), itertools.tee(())[0])),
)
_READERS: tuple[tuple[tuple[type, ...], _Reader], ...] = (
    ((types.ModuleType, torch.distributed.ProcessGroup, weakref.ref, type(None)), _by_type),
    ((Enum,), _enum),
    ((types.FunctionType,), _function),
    ((types.MethodType,), _method),
    ((types.BuiltinFunctionType, types.MethodWrapperType), _built_in),
    ((type,), _class),
    ((staticmethod, classmethod), _wrapped),
    ((property,), _property),
    ((functools.partial,), _partial),
    ((type(functools.cache(len)),), _cached),
    ((torch.nn.Module,), _module),
    ((torch.optim.Optimizer,), _optimizer),
    ((torch.utils.data.DataLoader,), _loader),
    ((torch.Tensor,), _tensor),
    ((numpy.ndarray,), _array),
    ((random.Random, numpy.random.Generator, numpy.random.RandomState, torch.Generator), _stream),
    ((dict,), _dict),
    ((list, tuple, deque), _sequence),
    ((set, frozenset), _set),
    ((types.MappingProxyType,), _view),
    ((bytearray, array.array, mmap.mmap), _buffer),
    (_ITERATORS, _iterator),
    ((types.GeneratorType, types.CoroutineType), _generator),
    ((io.StringIO, io.BytesIO), _in_memory),
    ((_IN_C,), _file),
    ((threading.local,), _of_thread),
    ((contextvars.ContextVar,), _context),
    ((pathlib.PurePath, torch.dtype, torch.device, numpy.generic, range, slice), _text),
    ((object,), _hash),
)


@functools.lru_cache(1024)
def _readers_of(kind: type) -> tuple[_Reader, ...]:
    return tuple(reader for bases, reader in _READERS if any(base in kind.__mro__ for base in bases))
