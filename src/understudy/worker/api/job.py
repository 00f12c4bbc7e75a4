"""The training API: `join`, and the `Job` that it returns.

The same script runs with Understudy, under torchrun and as a plain python process: without an agent, `join` makes the default
process group from the environment (or one of a single member) and the rest passes through.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any, Literal, ParamSpec, TypeVar, overload

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from understudy.common.names import STRICT_VARIABLE
from understudy.common.page_view import ALONE, Activity
from understudy.messages import script
from understudy.worker.api import session
from understudy.worker.api.attempts import Attempts, PlainAttempts
from understudy.worker.api.transaction import PassedTransaction, PlainTransaction, RecordedTransaction, Transaction
from understudy.worker.callables import returns_nothing
from understudy.worker.census import left_names
from understudy.worker.data import manual_iterators as drawn
from understudy.worker.data.iterators import LoaderIterator
from understudy.worker.data.led_loops import LedLoop, LedSource, Where
from understudy.worker.data.loaders import Counter, Source
from understudy.worker.data.loops import JobLoop, Loops, iterate
from understudy.worker.errors import UsageError, errors_of_functions
from understudy.worker.guards import own_group
from understudy.worker.guards.loop_checks import TRANSACTION, early_argument, early_read
from understudy.worker.guards.loop_variables import ReadAfter, names_read_after
from understudy.worker.integrations.registry import contents_of, source_of, take_over
from understudy.worker.recovery.newcomer import Newcomer
from understudy.worker.state.namespace import Namespace
from understudy.worker.state.registry import State
from understudy.worker.state.streams import ITERATOR
from understudy.worker.step.open_transaction import RUNS_CALLS
from understudy.worker.step.runtime import Runtime
from understudy.worker.verification.post_vote_changes import TOP, Look

P = ParamSpec("P")
R = TypeVar("R")


class Job:
    """A training job, as one rank sees it. Returned by `understudy.join`."""

    def __init__(self, runtime: Runtime | None) -> None:
        self._runtime = runtime
        self._newcomer: Newcomer | None = runtime.newcomer if runtime else None
        self._plain_steps = 0
        self._plain_state = State()
        self._plain_loops = Loops(None)
        # Kept, because a script may ask after dist.destroy_process_group().
        self._rank = runtime.progress.rank if runtime else dist.get_rank()
        self._world_size = runtime.progress.world_size if runtime else dist.get_world_size()

    @property
    def rank(self) -> int:
        """The rank of this process, from 0 to `world_size` - 1. It never changes."""
        return self._rank

    @property
    def world_size(self) -> int:
        """The number of ranks. It never changes."""
        return self._world_size

    @property
    def generation(self) -> int:
        """The number of times that the assignment of ranks to workers has changed."""
        return max(self._runtime.progress.generation, 0) if self._runtime else 0

    @property
    def committed(self) -> int:
        """The number of committed steps."""
        return self._runtime.progress.step if self._runtime else self._plain_steps

    @property
    def newcomer(self) -> bool:
        """Whether this worker took over a rank of a running job, and so skips what the job has already completed.

        Also true on a spare that is prepared for a rank, or that computes a drill of it. Do not use it to decide what to compute: all
        ranks must compute the same.
        """
        return self._newcomer is not None

    @property
    def first_run(self) -> bool:
        """Whether this part of the script runs for the first time for this rank in this job.

        Use it for effects outside of the process: a line that is printed, a file that is created, a run of an experiment tracker. It is
        false on a newcomer until the newcomer reaches the transaction at which the job continues. On all other workers it is always true,
        also in a step that is redone after a loss. Do not use it to decide what to compute: all ranks must compute the same.
        """
        return self._newcomer is None or not self._newcomer.catching_up

    def register(self, *, owns: Any = (), **objects: Any) -> None:
        """Register the state of the training, each object under a name. A newcomer receives it bit for bit.

        Objects are modules, optimizers, loaders, schedulers, scalers, tensors, generators, your own objects with `state_dict` and
        `load_state_dict`, and lists and dicts of these. An `Accelerator` stands for all that it has prepared. Call
        `register` before the first transaction, with the same names on every rank.

        `owns` lists objects that are not registered themselves, but whose state a registered object includes in its `state_dict`, such as
        a trainer whose counters an adapter returns. Understudy does not look into them: what else they change is neither carried over
        nor reported. A pair of a module and the name of its attribute stands for this attribute only.

        Raises `UnderstudyError` for an object whose state cannot be moved, a name that is taken, or a call after the first transaction.
        """
        state = self._runtime.state if self._runtime else self._plain_state
        if self._runtime and self._runtime.progress.transaction >= 0:
            raise UsageError(script.REGISTERED_LATE())
        for name, thing in objects.items():
            if name in state.names:
                raise UsageError(script.NAME_TAKEN(name=name))
            state.names.add(name)
            if take_over(name, thing, self if self._runtime else None, state.randomness):
                continue
            contents = contents_of(thing)
            for key, part in {name: thing}.items() if contents is None else contents.registered.items():
                state.register(name if contents is None else f"{name}.{key}", part)
            state.owned += contents.owned if contents is not None else ()
        for one in owns:
            if isinstance(one, tuple):
                state.attributes.left_out.setdefault(id(one[0]), set()).add(one[1])
            else:
                state.owned.append(one)
        drawn.watch()  # classes of loaders may have been imported since `join`

    def state(self, **values: Any) -> Namespace:
        """Return a registered namespace with these values, for state outside of modules and optimizers: counters, averages, best losses.

        Read and set its attributes: `track = job.state(best=float("inf"), bad=0)`, then `track.bad += 1`. Values are numbers, strings,
        tensors, arrays, and containers of them. Raises `UnderstudyError` where `register` does.
        """
        found = Namespace(**values)
        registered = (self._runtime.state if self._runtime else self._plain_state).names
        name = next(name for number in itertools.count(1) if (name := "state" if number == 1 else f"state-{number}") not in registered)
        self.register(**{name: found})
        return found

    def ignore(self, *names: str) -> None:
        """Exclude variables or attributes, by name: the script changes them, but the training does not depend on them.

        A newcomer starts without their values, and no notice is printed about them.
        """
        if self._runtime is not None:
            self._runtime.state.unregistered.ignore(names)

    @contextlib.contextmanager
    def long(self, what: str, limit: float | None = None) -> Iterator[None]:
        """Let this rank work for a long time while the others wait for it: `with job.long("upload", limit=3600):`. Allowed inside a step,
        too.

        `what` appears in messages about the rank. `limit` is the time in seconds after which the rank is considered hung; the default is
        `--alone-limit`. Raises `UnderstudyError` for a limit that is not a positive number.
        """
        if limit is not None and not 0 < limit < math.inf:
            raise UsageError(script.LONG_LIMIT(what=what, limit=limit))
        if self._runtime is None:
            yield
            return
        page = self._runtime.membership.control.page
        before = page.grant(ALONE if limit is None else float(limit), what)
        try:
            yield
        finally:
            page.grant(*before)

    def step(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorator: make `function` the training step. A call returns when all ranks have agreed to commit the step and this rank has
        finished it.

        The step votes before its first `optimizer.step`. All its collectives must come before that. After a loss it may run again with
        the same arguments, so its effects outside of the registered state must be safe to repeat. `function` can be a method, a partial,
        or another callable object.
        """
        return self._transaction(function, "step")

    @overload
    def section(self, function: Callable[P, R], *, on_error: Literal["raise"] = "raise") -> Callable[P, R]: ...

    @overload
    def section(self, function: Callable[P, R], *, on_error: Literal["report"]) -> Callable[P, R | None]: ...

    @overload
    def section(self, *, on_error: Literal["raise"] = "raise") -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    @overload
    def section(self, *, on_error: Literal["report"]) -> Callable[[Callable[P, R]], Callable[P, R | None]]: ...

    def section(self, function: Callable[..., Any] | None = None, *, on_error: str = "raise") -> Callable[..., Any]:
        """Decorator: make `function` a transaction that steps no optimizer, such as an evaluation or a checkpoint. It votes at its end.

        With `on_error="report"`, an error on any rank does not end the training. It is printed, and all ranks skip this call of the
        section, which returns None. State that the function has changed is restored as for a redo; files that it has written stay.
        Understudy's own errors, `SystemExit` and `KeyboardInterrupt` are still raised. Under torchrun with several ranks, all errors are
        raised.

        Raises `UnderstudyError` for another value of `on_error`.
        """
        if on_error not in ("raise", "report"):
            raise UsageError(script.ON_ERROR(given=on_error))
        if function is None:
            return functools.partial(self.section, on_error=on_error)
        return self._transaction(function, "section", on_error == "report")

    def _transaction(self, function: Callable[P, R], kind: str, reports: bool = False) -> Callable[P, R]:
        if self._runtime is not None:
            self._runtime.state.unregistered.transaction(function)

        @functools.wraps(function)
        def transaction(*args: P.args, **kwargs: P.kwargs) -> R:
            if self._runtime is None:
                result: R = _plainly(function, reports)(*args, **kwargs)
                self._count(kind)
                return result
            passed, kept = self._runtime.passes(kind, returns_nothing(function))
            value: R = kept if passed else self._runtime.transactions.run(function, kind, args, kwargs, reports)
            return value

        setattr(transaction, TRANSACTION, kind)
        return transaction

    def attempts(self, kind: Literal["step", "section"] = "step") -> Attempts | PlainAttempts:
        """Make a block of the script a transaction: `for attempt in job.attempts():`, then `with attempt:` around the code of the step.

        It is the same as a call of a function that is decorated with `step`, for a loop whose body is not a function of its own. After a
        loss the block runs again; the names that it sets first get back the values that they had before it. It must not change in place
        what the same iteration has made before it, such as the batch. `kind` is "step" or "section".

        Raises `UnderstudyError` for another `kind`.
        """
        self._check_kind("attempts", kind)
        return PlainAttempts(lambda: self._count(kind)) if self._runtime is None else Attempts(self._runtime, kind)

    def begin(self, name: str, kind: Literal["step", "section"] = "step") -> Transaction:
        """Begin a transaction that the caller continues by `call` and `vote`, and ends by `commit`: for adapters of training frameworks.

        `name` stands for the function in messages; each place in the source has its own. Raises `UnderstudyError` inside of another
        transaction and for another `kind`.
        """
        self._check_kind("begin", kind)
        if self._runtime is None:
            return PlainTransaction(lambda: self._count(kind))
        passed, kept = self._runtime.passes(kind)
        if passed:
            return PassedTransaction(kept)
        return RecordedTransaction(self._runtime, self._runtime.transactions.open(kind, name), sys._getframe(1).f_back)

    @staticmethod
    def _check_kind(method: str, kind: str) -> None:
        if kind not in ("step", "section"):
            raise UsageError(script.KIND_OF_TRANSACTION(method=method, given=kind))

    def _count(self, kind: str) -> None:
        """Count a transaction without Understudy."""
        self._plain_steps += kind == "step"

    def batches(self, loader: Any, steps: int | None = None) -> Iterator[Any]:
        """Iterate over `loader`, from the position of the job.

        With `steps`, the iterator has this number of iterations: at the end of the loader it calls `set_epoch` of the sampler and starts
        over. Without, it goes through the loader once. `len` returns the number of all iterations, for a progress bar.
        """
        state = self._runtime.state if self._runtime else self._plain_state
        return JobLoop(self._loop(source_of(loader, steps is not None, state.randomness), steps), loader if steps is None else steps)

    def steps(self, count: int | None = None) -> Iterator[int]:
        """Iterate over step numbers, from the position of the job to `count` - 1. Without `count`, until the script leaves the loop."""
        return JobLoop(self._loop(Counter(), count), count)

    def lead(self, position: Callable[[], Any], go_to: Callable[[Any], None]) -> LedLoop:
        """Begin a loop whose batches the caller draws itself, by `draw` of the result: for adapters of training frameworks.

        `position` returns where the caller is at the top of an iteration: numbers, strings, and containers of them. `go_to` is called with
        such a value on a newcomer, before its first draw. Raises `UnderstudyError` inside another loop of the job.
        """
        source = LedSource(position, go_to)
        return LedLoop(source, self._loop(source, None))

    def where(self) -> Where:
        """Return where the job is; on a newcomer, where it will continue. It ends the setup: call it where the first loop would begin, on
        all ranks.
        """
        runtime, newcomer = self._runtime, self._newcomer
        if runtime is None:
            place = self._plain_loops.next_place()
            return Where(place[0], place[1], self._plain_steps, None)
        runtime.state.unregistered.set_up()
        if newcomer is not None and not newcomer.done:
            return newcomer.where()
        place = runtime.loops.next_place()
        return Where(place[0], place[1], runtime.progress.step, None)

    def iterator(self, loader: Any, repeat: bool = False) -> LoaderIterator:
        """Return an iterator over `loader`. The script may call `next` on it anywhere: before, after or inside of a step.

        It continues at the position of the job. With `repeat`, it calls `set_epoch` of the sampler at the end of the loader and starts
        over. Create it before the first transaction, else `UnderstudyError` is raised: `extra = job.iterator(loader)`, then `next(extra)`.
        """
        runtime, state = self._runtime, self._runtime.state if self._runtime else self._plain_state
        if runtime and runtime.progress.transaction >= 0:
            raise UsageError(script.ITERATOR_LATE())
        iterators = state.randomness.iterators
        name = f"{ITERATOR}{len(iterators) + 1}"
        tell = runtime.notices.tell if runtime else print
        found = LoaderIterator(name, source_of(loader, repeat, state.randomness), state.randomness, tell)
        iterators[name] = found
        return found

    def _loop(self, source: Source, steps: int | None) -> Iterator[Any]:
        runtime, newcomer = self._runtime, self._newcomer
        loops = runtime.loops if runtime else self._plain_loops
        loop = loops.enter()
        if runtime is not None:
            runtime.state.unregistered.set_up()
        first = 0
        frame = left_names.script_frame()
        read_after = names_read_after(frame) if frame is not None else ReadAfter()
        if runtime is not None and frame is not None and newcomer is None:
            self._look_ahead(runtime, frame)
        try:
            if runtime is not None and newcomer is not None and not newcomer.done:
                run, copy = newcomer.enter_loop(loop)
                if not run:
                    newcomer.pass_by(loop, source, read_after, frame)
                    return
                if copy is not None and copy.boundary is not None:
                    batch, through = newcomer.redraw(source)
                    first = copy.boundary.iteration + 1
                    if through:
                        yield batch

            def top(iteration: int) -> None:
                drawn.at_top()
                if newcomer is not None and not newcomer.arrived:
                    newcomer.at_top()
                elif runtime is not None:
                    runtime.state.unregistered.at_top()
                    runtime.verification.post_vote.look(TOP, Look.AT_STREAMS)

            del frame  # which refers to this iterator
            yield from iterate(loops, source, first, steps, top)
            if runtime is not None and read_after.names and (newcomer is None or newcomer.done):
                self._leave_names(runtime, loop, read_after)
        finally:
            if runtime is not None and (newcomer is None or newcomer.done):
                _leave(runtime, loop)
            loops.leave(self.committed)

    def _look_ahead(self, runtime: Runtime, frame: FrameType) -> None:
        """Warn, when a loop begins in `frame`, about reads by its newcomers of state that has not arrived."""
        if given := early_argument(frame, runtime.state.covers):
            runtime.notices.tell(script.COMPUTED_OUTSIDE(what=given))
        elif ahead := early_read(frame, runtime.state.covers):
            runtime.notices.tell(script.USED_BETWEEN(what=ahead))

    def _leave_names(self, runtime: Runtime, loop: int, read_after: ReadAfter) -> None:
        """Note, at the end of this loop, the names that it has set and the script reads after it."""
        frame = left_names.script_frame()
        if frame is None or names_read_after(frame) != read_after:
            return  # another loop draws from this iterator
        missed = left_names.take(runtime.state.unregistered.left, loop, frame, read_after.names, read_after.new)
        if missed:
            runtime.notices.tell(script.NAMES_LEFT(names=", ".join(missed[:4]), place=read_after.where))
        runtime.verification.post_vote.owed = True


setattr(Job.attempts, TRANSACTION, "step")  # for the checks of a loop: nothing is known to come before it


def _plainly(function: Callable[..., Any], reports: bool) -> Callable[..., Any]:
    """Return the function of a transaction without Understudy. `reports`: its errors are printed if no other rank can wait for it."""

    def attempt(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except errors_of_functions():
            if dist.is_initialized() and dist.get_world_size() > 1:
                raise
            traceback.print_exc()

    return attempt if reports else function


def _leave(runtime: Runtime, loop: int) -> None:
    """Leave a loop that has ended, without a transaction after it that would report its changes."""
    runtime.state.unregistered.at_end(loop)
    if os.environ.get(STRICT_VARIABLE) == "1":
        return  # the next transaction refuses it
    for text in runtime.state.unregistered.news():
        runtime.notices.tell(text)


def _code_of(function: Callable[..., Any], name: str) -> CodeType:
    """Return the code of the function `name` that is defined inside `function`."""
    return next(code for code in function.__code__.co_consts if isinstance(code, CodeType) and code.co_name == name)


_BOUNDARY = frozenset({_code_of(Job._transaction, "transaction"), RUNS_CALLS})  # frames above one of these are the script's


def join(backend: str | None = None) -> Job:
    """Join the job. Replaces `torch.distributed.init_process_group`.

    `backend` has the same meaning as in `init_process_group`; the default is gloo for the host, and nccl if there are GPUs. Call `join`
    once, before any collective.
    The same script also runs under torchrun, and as a plain Python process. Raises `UnderstudyError` if it is called twice.
    """
    if session.current is None:
        _join_plainly(backend)
        return Job(None)
    if session.current.runtime is not None:
        raise UsageError(script.JOINED_TWICE())
    if dist.is_initialized():
        raise UsageError(script.GROUP_BEFORE_JOIN())
    own_group.expect()
    drawn.watch()
    here = session.current
    here.control.page.enter(Activity.SETUP, -1)
    runtime = here.runtime = Runtime(here.control, here.role, here.server, here.opened, _BOUNDARY)
    runtime.rank_state.frameworks.watch(lambda: runtime.progress.transaction >= 0)
    if here.when_joined is not None:
        here.when_joined(runtime)
    runtime.join(backend)
    return Job(runtime)


def _join_plainly(backend: str | None) -> None:
    if "RANK" in os.environ:
        dist.init_process_group(backend)
    else:
        kind = backend or ("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
        dist.init_process_group(kind, store=HashStore(), rank=0, world_size=1)
