"""Reads one object of any kind: a mark that differs if the object does, and its parts, each with the step to it.

A reader knows a type and what derives from it. An object written in Python has its attributes. For everything else the references are
followed that the garbage collector knows (`gc.get_referents`). They miss what an object keeps in C, so iterators, files, generators of
random numbers and hashes have separate readers.

Four rules limit the walk: a function is its closure, its defaults and its attributes, never its globals; a class is its own names,
without bases; modules that were imported end the walk; so do classes and functions of installed packages, and objects of packages that
only report or run things.

Containers are read by the methods of their base class, so that no code of the script runs. The exceptions are the `state_dict` of a
registered object, which is read in every step anyway, and `__class__` where an object defines it. What raises is reported as not
readable.
"""

from __future__ import annotations

import array
import contextvars
import functools
import io
import itertools
import mmap
import pathlib
import random
import sys
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy
import torch
from torch.utils.data.dataloader import _BaseDataLoaderIter

from understudy.worker.census.readers import callables, containers, moving, of_torch
from understudy.worker.census.readers.reading import CARRIED, NOTHING, Reading, fixed_mark, is_class_of_script, is_fixed
from understudy.worker.census.walk import Path, attributes_of

# Objects of these packages report, or run things, and are no state of a training; understudy's own are followed in other ways.
_ENDS = frozenset(
    [
        *(
            "understudy",
            "tqdm",
            "rich",
            "wandb",
            "mlflow",
            "tensorboard",
            "tensorboardX",
            "comet_ml",
            "neptune",
            "clearml",
            "aim",
            "swanlab",
            "loguru",
            "matplotlib",
            "pytest",
            "_pytest",
        ),
        *("logging", "multiprocessing", "concurrent", "asyncio", "subprocess", "socket", "selectors", "ssl", "http", "urllib", "warnings"),
        *("importlib", "inspect", "ast", "typing", "re", "tempfile", "signal", "contextlib", "abc", "argparse", "unittest", "threading"),
        *("_thread", "zoneinfo", "datetime", "time", "traceback", "linecache", "ctypes"),
    ]
)
_WALKED_OF_TORCH = tuple(f"torch.{name}" for name in ("utils.data", "optim", "amp", "quasirandom", "nn", "distributed.algorithms"))
_IN_C = io.IOBase.__mro__[1]  # from which files derive that are written in C


def read_object(path: Path, thing: Any) -> Reading:
    """Return the reading of `thing` at `path`, of whatever kind."""
    if thing is CARRIED:
        return Reading(CARRIED.mark)
    kind = type(thing)
    name = kind.__qualname__
    if is_fixed(thing):
        return Reading((name, fixed_mark(thing)))
    for reader in _readers_of(kind):  # type: ignore[arg-type]
        reading = reader(path, thing)
        if reading is not None:
            return NOTHING if reading is NOTHING else Reading((name, reading.mark), reading.parts)
    if kind.__module__ == "understudy.worker.api.job":
        return Reading(name, tuple(part for part in attributes_of(path, thing) if not str(part[0].steps[-1][1]).startswith("_")))
    if _is_end(kind):
        return NOTHING
    if kind.__dictoffset__ or any("__slots__" in vars(part) for part in kind.__mro__):
        return Reading(name, attributes_of(path, thing))
    return Reading(name, moving.referents(path, thing))


def read_base(path: Path, thing: Any) -> Reading:
    """Return what a base class keeps in addition to the attributes that a walk has read: items of a dict, hooks of a module."""
    name = type(thing).__qualname__
    if isinstance(thing, torch.Tensor):
        return Reading(None, (*of_torch.tensor_parts(path, thing), *of_torch.gradient_parts(path, thing)))  # its content is carried
    if isinstance(thing, Enum):
        return Reading(None, _enum(path, thing).parts)
    for reader in _readers_of(type(thing)):  # type: ignore[arg-type]
        reading = reader(path, thing)
        if reading is not None:
            own = {part_path for part_path, _ in attributes_of(path, thing)}
            return Reading((name, reading.mark), tuple(part for part in reading.parts if part[0] not in own))
    return Reading(name)


def _is_end(kind: type) -> bool:
    module = kind.__module__ if isinstance(kind.__module__, str) else ""
    package = module.partition(".")[0]
    if package == "torch":
        return not module.startswith(_WALKED_OF_TORCH)
    return package in _ENDS


def _nothing(path: Path, thing: Any) -> Reading:
    return NOTHING


def _module(path: Path, module: types.ModuleType) -> Reading:
    """Return the names of a module that the script has made itself, as a namespace; nothing of one that was imported."""
    names = vars(module)
    if type(module) is not types.ModuleType or names.get("__spec__") is not None or sys.modules.get(module.__name__) is module:
        return NOTHING
    return Reading(None, tuple((path.then("attribute", name), value) for name, value in names.items() if not name.startswith("__")))


def _text(path: Path, thing: Any) -> Reading:
    return Reading(str(thing))


def _enum(path: Path, member: Enum) -> Reading:
    """Return the name of a member, and the attributes that the script has given it."""
    parts = attributes_of(path, member) if is_class_of_script(type(member)) else ()
    return Reading(member.name, tuple(part for part in parts if not str(part[0].steps[-1][1]).startswith("_")))


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
    ((types.ModuleType,), _module),
    ((torch.distributed.ProcessGroup, weakref.ref, type(None)), _nothing),
    ((Enum,), _enum),
    ((types.FunctionType,), callables.read_function),
    ((types.MethodType,), callables.read_method),
    ((types.BuiltinFunctionType, types.MethodWrapperType), callables.read_built_in),
    ((type,), callables.read_class),
    ((staticmethod, classmethod), callables.read_wrapped),
    ((property,), callables.read_property),
    ((functools.partial,), callables.read_partial),
    ((type(functools.cache(len)),), callables.read_cache),
    ((torch.nn.Module,), of_torch.read_module),
    ((torch.optim.Optimizer,), of_torch.read_optimizer),
    ((torch.utils.data.DataLoader,), of_torch.read_loader),
    ((torch.utils.data.Sampler,), of_torch.read_sampler),
    ((torch.Tensor,), of_torch.read_tensor),
    ((numpy.ndarray,), containers.read_array),
    ((random.Random, numpy.random.Generator, numpy.random.RandomState, torch.Generator), containers.read_stream),
    ((dict,), containers.read_dict),
    ((list, tuple, deque), containers.read_sequence),
    ((set, frozenset), containers.read_set),
    ((weakref.WeakKeyDictionary,), containers.read_weak_keys),
    ((types.MappingProxyType,), containers.read_view),
    ((bytearray, array.array, mmap.mmap), containers.read_buffer),
    (_ITERATORS, moving.read_iterator),
    ((_BaseDataLoaderIter,), moving.read_loader_iterator),
    ((types.GeneratorType, types.CoroutineType), moving.read_generator),
    ((io.StringIO, io.BytesIO), moving.read_in_memory),
    ((_IN_C,), moving.read_file),
    ((threading.local,), moving.read_thread_local),
    ((contextvars.ContextVar,), moving.read_context_variable),
    ((pathlib.PurePath, torch.dtype, torch.device, numpy.generic, range, slice), _text),
    ((object,), moving.read_hash),
)


@functools.lru_cache(1024)
def _readers_of(kind: type) -> tuple[_Reader, ...]:
    return tuple(reader for bases, reader in _READERS if any(base in kind.__mro__ for base in bases))
