"""Wrong use of the API is refused where its rule is checked: the first time, by name, and correct use is not.
`tests/integration/recovery/test_training_messages.py` shows with real processes that a refusal ends the job, with the message, the rank
and the exit code. Other rules are tested with their subjects: arguments that change in `test_contents`, too much data received in a
set-up in `test_collective_replay`, loaders in `test_iterators` and `test_drawn`, gradients in `test_gradients`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
import torch.testing._internal.distributed.fake_pg  # registers the backend "fake"
from tests.message_texts import has, refused
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import StepLR

from understudy.core.coverage import Replicas
from understudy.messages import frameworks, registered, script
from understudy.messages import transactions as messages
from understudy.messages.base import Message
from understudy.worker.api import job as api
from understudy.worker.api import session
from understudy.worker.api.job import Job
from understudy.worker.data.loops import Loops
from understudy.worker.errors import UsageError
from understudy.worker.frameworks import ddp
from understudy.worker.frameworks.aggregate import Frameworks
from understudy.worker.generation.context import RankContext
from understudy.worker.progress import Progress
from understudy.worker.state import rank_local
from understudy.worker.state.rank_local import CLASSIFIED, LocalState
from understudy.worker.state.registration import refuse_sparse_gradients, uncovered
from understudy.worker.state.registry import State
from understudy.worker.step.setup import SetUp
from understudy.worker.step.transactions import Transactions
from understudy.worker.transport.groups import Groups


class Counter:
    def state_dict(self) -> dict[str, int]:
        return {"count": 0}

    def load_state_dict(self, state: dict[str, int]) -> None:
        raise AssertionError("never")


@pytest.fixture(scope="module", autouse=True)
def world() -> Iterator[None]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def running(transaction: int = 0) -> Job:
    """A job of one rank that has reached this transaction."""
    notices = SimpleNamespace(tell=print)
    runtime = SimpleNamespace(newcomer=None, progress=Progress(0, 1, transaction), state=State(), loops=Loops(None), notices=notices)
    return Job(cast(Any, runtime))


# -- the job -------------------------------------------------------------------------------------------------------------------


def test_a_process_joins_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "current", SimpleNamespace(runtime=object()))
    with refused(UsageError, script.JOINED_TWICE):
        api.join()


@pytest.mark.parametrize("job", [Job, lambda _: running(-1)], ids=["plain", "with an agent"])
def test_a_name_is_registered_once(job: Callable[[None], Job]) -> None:
    made = job(None)
    made.register(counter=Counter())
    made.register(other=Counter())
    with refused(UsageError, script.NAME_TAKEN, name="counter"):
        made.register(counter=Counter())
    first, second = made.state(best=0), made.state(best=0)
    assert first is not second


def test_nothing_is_registered_after_the_first_transaction() -> None:
    running(-1).register(counter=Counter())
    for register in (lambda: running().register(late=Counter()), lambda: running().state(best=0)):
        with refused(UsageError, script.REGISTERED_LATE):
            register()
    running(-1).iterator([1, 2])
    with refused(UsageError, script.ITERATOR_LATE):
        running().iterator([1, 2])


def test_what_has_no_state_cannot_be_registered() -> None:
    with open(__file__) as file, refused(UsageError, script.NO_STATE_DICT, name="file", type="TextIOWrapper"):
        running(-1).register(file=file)


def test_a_value_that_was_never_given_is_named() -> None:
    track = running(-1).state(best=1.0, bad=0)
    with refused(AttributeError, script.NO_SUCH_VALUE, name="worst", known="best, bad"):
        _ = track.worst


def test_only_the_outer_loop_is_the_jobs() -> None:
    job = Job(None)
    for _ in job.steps(1):
        with refused(UsageError, script.NESTED_LOOPS):
            next(iter(job.steps(3)))
        with refused(UsageError, script.NESTED_LOOPS):
            next(iter(job.batches([1, 2])))
    assert list(job.steps(2)) == [0, 1]


# -- what is registered --------------------------------------------------------------------------------------------------------


def of(**things: Any) -> State:
    state = State()
    for name, thing in things.items():
        state.register(name, thing)
    return state


def test_an_optimizer_goes_with_its_model() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    assert uncovered(of(optimizer=optimizer)) == script.MODEL_NOT_REGISTERED(optimizer="optimizer")
    assert uncovered(of(model=model, optimizer=optimizer)) == ""


def test_an_optimizer_goes_with_tensors_that_belong_to_no_module() -> None:
    model = nn.Linear(2, 2)
    masters = [parameter.detach().double().requires_grad_() for parameter in model.parameters()]
    optimizer = torch.optim.AdamW(masters)
    reported = uncovered(of(model=model, optimizer=optimizer))
    assert has(reported, script.TENSORS_NOT_REGISTERED, optimizer="optimizer", count=2, shape=(2, 2))
    assert uncovered(of(model=model, masters=masters, optimizer=optimizer)) == ""


@pytest.mark.parametrize("make", [torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr])
def test_a_sparse_buffer_is_refused(make: Callable[[torch.Tensor], torch.Tensor]) -> None:
    model = nn.Linear(2, 2)
    model.register_buffer("mix", make(torch.eye(2)))
    with refused(UsageError, script.SPARSE_TENSOR, name="model/buffer/mix"):
        of(model=model).all_tensors()


def test_a_schedule_goes_with_its_optimizer() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = StepLR(optimizer, 2)
    assert uncovered(of(model=model, optimizer=optimizer)) == script.SCHEDULE_NOT_REGISTERED(optimizer="optimizer")
    assert uncovered(of(model=model, optimizer=optimizer, schedule=schedule)) == ""
    assert uncovered(of(model=model, optimizer=optimizer, counter=Counter())) == "", "an object of one's own may hold it"


def test_an_optimizer_whose_state_is_on_one_rank_alone_is_not_covered() -> None:
    model = nn.Linear(2, 2)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam)
    assert uncovered(of(model=model, optimizer=optimizer)) == script.ZERO_REDUNDANCY(optimizer="optimizer")


def test_sparse_gradients_are_not_covered() -> None:
    table = nn.Embedding(4, 2, sparse=True)
    assert uncovered(of(table=table)) == script.SPARSE_EMBEDDING(module="table", type="Embedding")
    assert uncovered(of(net=nn.Sequential(table))) == script.SPARSE_EMBEDDING(module="net.0", type="Embedding")
    state = of(table=table)
    refuse_sparse_gradients(state)
    torch.autograd.backward(table(torch.tensor([1])).sum())
    with refused(UsageError, script.SPARSE_GRADIENT, parameter="table/parameter/weight"):
        refuse_sparse_gradients(state)


def set_up(state: State) -> SetUp:
    groups = Groups()
    groups._installed = dict(groups._backends)
    made = SetUp.__new__(SetUp)
    made._membership = cast(Any, SimpleNamespace(groups=groups))
    made._rank_state = cast(Any, SimpleNamespace(state=state, frameworks=Frameworks(state, groups)))
    return made


@pytest.fixture
def no_ddp(monkeypatch: pytest.MonkeyPatch) -> list[DistributedDataParallel]:
    """Those that were made."""
    made: list[DistributedDataParallel] = []
    monkeypatch.setattr(ddp, "_made", made)
    return made


def test_the_set_up_ends_where_something_is_not_covered(no_ddp: list[DistributedDataParallel]) -> None:
    model = nn.Linear(2, 2)
    set_up(of(model=model))._refuse_uncovered()
    with refused(UsageError, script.MODEL_NOT_REGISTERED, optimizer="optimizer"):
        set_up(of(optimizer=torch.optim.AdamW(model.parameters())))._refuse_uncovered()


def test_a_ddp_that_is_not_registered_ends_it(no_ddp: list[DistributedDataParallel]) -> None:
    model = DistributedDataParallel(nn.Linear(2, 2))
    no_ddp.append(model)
    set_up(of(model=model))._refuse_uncovered()
    with refused(UsageError, frameworks.DDP_NOT_REGISTERED, modules="Linear"):
        set_up(of(counter=Counter()))._refuse_uncovered()


def test_fsdp_of_the_first_kind_ends_it(no_ddp: list[DistributedDataParallel]) -> None:
    whole = FullyShardedDataParallel(nn.Linear(2, 2), device_id=torch.device("cpu"))
    with refused(UsageError, frameworks.FSDP1):
        set_up(of(whole=whole))._refuse_uncovered()


def test_a_group_that_cannot_be_connected_again_ends_it(no_ddp: list[DistributedDataParallel]) -> None:
    group = dist.new_group(backend="fake")
    try:
        with refused(UsageError, messages.BACKEND_NOT_COVERED, backends="fake"):
            set_up(of(model=nn.Linear(2, 2)))._refuse_uncovered()
    finally:
        dist.destroy_process_group(group)
    set_up(of(model=nn.Linear(2, 2)))._refuse_uncovered()


# -- transactions --------------------------------------------------------------------------------------------------------------


def transactions(progress: Progress, *optimizers: torch.optim.Optimizer) -> Transactions:
    """With what they have at hand where an optimizer is stepped, and where another transaction begins."""
    held = SimpleNamespace(state=of(**{f"optimizer{number}": one for number, one in enumerate(optimizers)}))
    nothing: Any = None
    return Transactions(RankContext(progress, nothing, cast(Any, held), nothing), nothing, nothing, nothing, nothing, nothing)


@pytest.mark.parametrize(
    ("progress", "message", "arguments"),
    [
        (Progress(0, 1, 3, kind="section", function="evaluate"), messages.OPTIMIZER_IN_SECTION, {"running": "section evaluate"}),
        (Progress(0, 1, 3), messages.OPTIMIZER_OUTSIDE, {}),
        (Progress(0, 1, 3, kind="step", function="train"), messages.OPTIMIZER_NOT_REGISTERED, {"optimizer": "AdamW"}),
    ],
    ids=["in a section", "outside", "one that is not registered"],
)
def test_an_optimizer_is_stepped_in_a_step_and_registered(progress: Progress, message: Message, arguments: dict[str, object]) -> None:
    parameters = list(nn.Linear(2, 2).parameters())
    known, other = torch.optim.SGD(parameters), torch.optim.AdamW(parameters)
    with refused(UsageError, message, **arguments):
        transactions(progress, known).before_optimizer_step(other, (), {})


def test_a_correct_step_is_accepted() -> None:
    known = torch.optim.SGD(nn.Linear(2, 2).parameters())
    transactions(Progress(0, 1, 3, kind="step", function="train", past_vote=True), known).before_optimizer_step(known, (), {})
    transactions(Progress(0, 1, -1), known).before_optimizer_step(known, (), {})  # in the set-up, as some libraries do


def test_transactions_are_called_one_after_the_other() -> None:
    def evaluate() -> None:
        raise AssertionError("never")

    with refused(UsageError, messages.NESTED, name=evaluate.__qualname__, running="step train"):
        transactions(Progress(0, 1, 3, kind="step", function="train")).run(evaluate, "section", (), {})


# -- the copy for other ranks --------------------------------------------------------------------------------------------------


TOO_LARGE = {False: registered.LOCAL_STATE_TOO_LARGE, True: registered.CARRIED_GRADIENTS_TOO_LARGE}


@pytest.mark.parametrize("carried", TOO_LARGE)
def test_rank_local_state_that_is_too_large(carried: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """4 MB that differ from rank to rank, where 1 MB is allowed."""
    monkeypatch.setattr(rank_local, "LIMIT", 1 << 20)
    local = LocalState(of(cache=torch.zeros(1 << 20)), 1)
    local.comparisons, local.replicas = CLASSIFIED, Replicas({"cache/tensor": (0, 0)})
    assert local.make(0, [0, 0, 0], 0, None, {}, carried).tensors == {}, "what another rank has, too, is not copied"
    local.replicas = Replicas({"cache/tensor": (0, 1)})
    with refused(UsageError, TOO_LARGE[carried], rank=1, megabytes=(4 << 20) / 1e6, limit=(1 << 20) / 1e6):
        local.make(1, [0, 1, 0], 1, None, {}, carried)
