"""Records digests of a rank's state after each of its commits, for `understudy run --check`, which compares two runs.

Loaded only in a job of `--check`. It listens where transactions are committed, and reads everything that makes up the rank's state,
without leaving a trace: it finds nothing that the runtime would have found only later, or not at all. So of the unregistered state (the
census) it has what the runtime knows by then.

Random streams without a seed would make any two runs differ. So they are seeded here before the script begins, by rank, and on a
newcomer otherwise than on its rank: a script that needs them alike must ensure that itself.

`record/RANK-WORKER.jsonl` in the run directory: a line for the registered objects, then one for each commit.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch

from understudy.common.names import RECORD, RECORD_VARIABLE, RUN_DIR_VARIABLE
from understudy.worker import hooks
from understudy.worker.api import session
from understudy.worker.encoding.canonical import canonical
from understudy.worker.encoding.codec import encode
from understudy.worker.encoding.contents import content_of
from understudy.worker.encoding.digests import digest_bytes
from understudy.worker.guards.file_access import FileAccessGuard
from understudy.worker.state.optimizers import common_values, loose_values
from understudy.worker.state.registry import State
from understudy.worker.state.tensors import digest_of, local_tensor
from understudy.worker.state.unregistered import is_unregistered
from understudy.worker.step.runtime import Runtime
from understudy.worker.verification import step_digests as moments

NEWCOMER = 1 << 20  # more than any rank


def install() -> None:
    """Install the recorder on a worker that has just got its rank, before its script begins."""
    here = session.current
    assert here is not None
    seed = here.role.rank + NEWCOMER * here.newcomer
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)
    folder = Path(os.environ[RUN_DIR_VARIABLE], RECORD)
    folder.mkdir(mode=0o700, exist_ok=True)
    recorder = Recorder(folder / f"{here.role.rank}-{here.control.worker}.jsonl")
    hooks.on("committed", recorder.committed)
    if not here.newcomer:
        recorder.opened.install()


class ReadFiles(FileAccessGuard):
    """Notes files that a set-up reads and that have changed since the check began: an earlier run of the check may have written them."""

    def __init__(self, since: int, tell: Callable[[str, int], None]) -> None:
        super().__init__()
        self._since, self._report_file = since, tell

    def noted(self, path: str, changed: int) -> None:
        if changed >= self._since:
            self._report_file(path, changed)


class Recorder:
    """The recorder of one worker. `path`: of its file, which it makes when it has something to write."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._begun = False
        self.opened = ReadFiles(int(os.environ[RECORD_VARIABLE]), lambda path, changed: self._write({"read": path, "changed": changed}))

    def committed(self, kind: str, function: str, result: Any) -> None:
        """Record a commit: a listener of this point."""
        runtime = session.current.runtime if session.current is not None else None
        if runtime is None or runtime.watch.current.alone:
            return  # the spare of a drill is not the rank whose number it has
        if not self._begun:
            self._begun = True
            self.opened.remove()
            self._write(_registered(runtime.state))
        self._write(_commit(runtime, kind, function, result))

    def _write(self, line: dict[str, Any]) -> None:
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.write(self._fd, json.dumps(line).encode() + b"\n")


def _registered(state: State) -> dict[str, Any]:
    """Return names and types, and sizes."""
    things = {**state.modules, **state.optimizers, **state.values, **state.tensors, **state.loaders}
    things |= {**state.randomness.generators, **state.randomness.numpy_generators}
    tensors = [local_tensor(tensor) for tensor in _tensors(state).values()]
    return {
        "registered": {name: type(thing).__qualname__ for name, thing in things.items() if name.partition(".")[0] in state.names},
        "tensors": len(tensors),
        "bytes": sum(tensor.numel() * tensor.element_size() for tensor in tensors),
    }


def _commit(runtime: Runtime, kind: str, function: str, result: Any) -> dict[str, Any]:
    progress, state = runtime.progress, runtime.state
    values = _values(state)
    content = content_of(result)
    digests = {entry: digest_of(tensor) for entry, tensor in (_tensors(state) | state.made_gradients()).items()}
    digests |= {entry: digest_bytes(data) for entry, data in values.items()}
    digests |= {moments.stream(name): digest_bytes(data) for name, data in state.randomness.capture().items()}
    digests |= {moments.RESULT: content.all} if not content.opaque else {}
    shown = {entry: data for entry, data in values.items() if not is_unregistered(entry)}
    plain = result.item() if isinstance(result, torch.Tensor) and result.numel() == 1 else result
    return {
        "rank": progress.rank,
        "transaction": progress.transaction - 1,
        "step": progress.step,
        "kind": kind,
        "function": function,
        "opaque": content.opaque,
        "digests": digests,
        "shown": moments.texts(shown | moments.encoded(moments.RESULT, plain)),
    }


def _tensors(state: State) -> dict[str, torch.Tensor]:
    """Return the tensors of the rank's state, without gradients."""
    buffers = {f"{key}/buffer/{name}": buffer for key, module in state.modules.items() for name, buffer in module.named_buffers()}
    own = {f"{name}/tensor": tensor for name, tensor in state.tensors.items()}
    return {**dict(state.parameters()), **buffers, **own, **dict(state.moments())}


def _values(state: State) -> dict[str, bytes]:
    found = state.encoded_values({f"{name}/value" for name in state.values}, closely=False)
    found |= state.attributes.encoded(None, closely=False) | state.attributes.present()
    for key, optimizer in state.optimizers.items():
        groups = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
        found[f"{key}/settings"] = encode([groups, canonical(loose_values(optimizer)), canonical(common_values(optimizer))])
    return found | state.unregistered.encoded(None, closely=False)
