"""Attributes of modules other than tensors: bound again by a redo, in place, and given to a newcomer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.message_texts import has
from torch import nn
from torch.nn.utils import prune

from understudy.messages import registered as registered_messages
from understudy.worker.encoding.codec import decode
from understudy.worker.errors import UnderstudyError
from understudy.worker.state.preallocation import Preallocation
from understudy.worker.state.registry import State


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.drop = nn.Linear(4, 4), nn.Dropout(0.1)
        self.calls = 0
        self.seen: list[int] = []
        self.rates = {"a": 1.0}
        self.hidden = torch.zeros(4)
        self.own = object()
        self.register_buffer("queue", torch.zeros(2))
        self.later: torch.Tensor | None
        self.register_buffer("later", None)

    def attempt(self) -> None:
        """What a step may do to it."""
        self.calls += 1
        self.seen.append(self.calls)
        self.rates["b"] = 2.0
        self.hidden = torch.ones(4)
        self.drop.p = 0.5
        self.eval()
        self.layer.weight.requires_grad_(False)
        self.queue = torch.ones(5)
        self.later = torch.ones(3)
        self.extra = nn.Linear(1, 1)


def registered(net: nn.Module) -> State:
    return registered_in(State(), net)


def registered_in(state: State, net: nn.Module) -> State:
    state.register("net", net)
    state.set_up()
    return state


def test_a_redo_binds_all_of_it_again_and_replaces_nothing() -> None:
    net = Net()
    state = registered(net)
    seen, rates, hidden, own, queue = net.seen, net.rates, net.hidden, net.own, net.queue
    snapshot = state.snapshot()
    net.attempt()
    state.restore(snapshot)
    assert net.seen is seen == [] and net.rates is rates == {"a": 1.0} and net.own is own
    assert net.hidden is hidden and net.queue is queue
    assert net.later is None
    assert net.training and net.drop.training and net.drop.p == 0.1 and net.calls == 0
    assert net.layer.weight.requires_grad and not hasattr(net, "extra")


def test_a_second_redo_of_the_same_begin_does_the_same() -> None:
    net = Net()
    state = registered(net)
    snapshot = state.snapshot()
    for _ in range(2):
        net.attempt()
        state.encoded_values()  # as a recovery does in between, which searches all parts again
        state.restore(snapshot)
        assert net.calls == 0 and net.seen == [] and net.drop.p == 0.1 and not hasattr(net, "extra")


@pytest.mark.parametrize("change", ["data", "resize"])
def test_memory_that_an_attempt_has_exchanged_is_put_back(change: str) -> None:
    net = nn.BatchNorm1d(3)
    assert isinstance(net.running_mean, torch.Tensor)
    mean, address = net.running_mean, net.running_mean.data_ptr()
    state = registered(net)
    snapshot = state.snapshot()
    if change == "data":
        mean.data = torch.ones(7)
    else:
        mean.resize_(1000)
    state.restore(snapshot)
    assert net.running_mean is mean and mean.tolist() == [0.0, 0.0, 0.0]
    assert change == "resize" or mean.data_ptr() == address


def test_what_has_changed_since_the_set_up_goes_to_a_newcomer_and_nothing_else() -> None:
    rank, newcomer = Net(), Net()
    here, there = registered(rank), registered(newcomer)
    before = here.encoded_values(closely=False)
    assert not any("/attribute" in entry for entry in here.encoded_values())
    rank.calls, rank.drop.p, rank.hidden = 7, 0.4, torch.ones(4)
    rank.seen += [1, 2]
    rank.layer.bias.requires_grad_(False)
    assert here.encoded_values(closely=False) == before  # not looked for in every step, ...
    found = here.encoded_values()
    assert {entry.rpartition("/")[2] for entry in found} == {"attribute-requires_grad", "drop:p", ":calls", ":hidden", ":seen"}
    rank.calls = 8
    assert decode(here.encoded_values(closely=False)["net/attribute/:calls"]) == [8]  # ... but read in every step once it was found
    seen = newcomer.seen
    for entry, data in found.items():
        there.load_value(entry, data)
    assert (newcomer.calls, newcomer.drop.p, newcomer.seen) == (7, 0.4, [1, 2]) and newcomer.seen is seen
    assert torch.equal(newcomer.hidden, torch.ones(4)) and not newcomer.layer.bias.requires_grad and newcomer.layer.weight.requires_grad
    assert there.encoded_values().keys() == found.keys()


def test_a_part_in_whose_place_there_is_one_of_another_class_is_of_that_class_on_a_newcomer() -> None:
    rank, newcomer = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    here, there = registered(rank), registered(newcomer)
    here.snapshot()
    rank[1] = nn.GELU("tanh")
    assert here.attributes.moved
    found = here.encoded_values()
    assert here.attributes.news() == []
    for entry, data in found.items():
        there.load_value(entry, data)
    assert type(newcomer[1]) is nn.GELU and vars(newcomer[1]).keys() == vars(rank[1]).keys() and newcomer[1].approximate == "tanh"
    assert there.encoded_values() == found
    there.attributes.undo(())
    assert repr(newcomer[1]) == repr(nn.ReLU())


def test_a_part_of_a_class_that_a_newcomer_does_not_find_is_reported() -> None:
    class Here(nn.ReLU): ...

    rank, newcomer = nn.Sequential(nn.ReLU()), nn.Sequential(nn.ReLU())
    here, there = registered(rank), registered(newcomer)
    rank[0] = Here()
    found = here.encoded_values()
    (news,) = here.attributes.news()
    assert has(news, registered_messages.PARTS_CHANGED)
    with pytest.raises(UnderstudyError) as error:
        there.load_value("net/attribute/0:__class__", found["net/attribute/0:__class__"])
    assert has(str(error.value), registered_messages.PART_MISSING, entry="net/attribute/0:__class__")


class Scaled(torch.optim.SGD):
    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.1)
        self.scale, self.norms, self.average = 1.0, [0.0], torch.zeros(2)


def test_attributes_of_an_optimizer_are_put_back_by_a_redo_and_go_to_a_newcomer() -> None:
    states, optimizers = [], []
    for _ in range(2):
        net = nn.Linear(2, 2)
        optimizer = Scaled(net.parameters())
        state = State()
        state.register("optimizer", optimizer)
        states.append(registered_in(state, net))
        optimizers.append(optimizer)
    (here, there), (rank, newcomer) = states, optimizers
    norms, kept = newcomer.norms, here.snapshot()
    rank.scale, rank.average = 0.5, torch.ones(2)
    rank.norms.append(1.0)
    here.restore(kept)
    assert (rank.scale, rank.norms, rank.average.tolist()) == (1.0, [0.0], [0.0, 0.0])
    assert not any("/attribute" in entry for entry in here.encoded_values())
    rank.scale, rank.average = 0.5, torch.ones(2)
    rank.norms.append(1.0)
    found = here.encoded_values()
    assert {entry for entry in found if "/attribute" in entry} == {f"optimizer/attribute/:{name}" for name in ("scale", "norms", "average")}
    for entry, data in found.items():
        there.load_value(entry, data)
    assert (newcomer.scale, newcomer.norms, newcomer.average.tolist()) == (0.5, [0.0, 1.0], [1.0, 1.0]) and newcomer.norms is norms


def test_of_a_hidden_state_whose_history_is_spent_the_values_go_to_a_newcomer() -> None:
    rank, newcomer = Net(), Net()
    here, there = registered(rank), registered(newcomer)
    rank.hidden = rank.layer(torch.ones(4)).square()
    torch.autograd.backward(rank.hidden.sum())
    here.snapshot()
    found = here.encoded_values()
    for entry, data in found.items():
        there.load_value(entry, data)
    assert torch.equal(newcomer.hidden, rank.hidden) and there.encoded_values() == found and here.attributes.news() == []


def test_a_graph_that_is_kept_from_step_to_step_is_reported() -> None:
    net = Net()
    net.constant = net.layer(torch.ones(4))
    state = registered(net)
    state.snapshot()
    assert state.attributes.news() == []
    net.hidden = net.layer(torch.ones(4))
    state.snapshot()
    (text,) = state.attributes.news()
    assert has(text, registered_messages.ATTRIBUTE_KEEPS_GRAPH, attribute="net.:hidden")


def pruned(layer: nn.Module) -> nn.Module:
    prune.random_unstructured(layer, "weight", 0.5)  # type: ignore[no-untyped-call]
    return layer


@pytest.mark.parametrize("wrap", [nn.utils.weight_norm, nn.utils.spectral_norm, pruned])
@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_a_weight_that_each_forward_pass_computes_is_no_attribute(wrap: Any, trained: bool) -> None:
    net = Net()
    net.layer = wrap(nn.Linear(4, 4, bias=False))
    net.requires_grad_(trained)
    state = registered(net)
    for _ in range(2):
        state.snapshot()
        made = net.layer(torch.ones(4)).sum()
        if trained:
            torch.autograd.backward(made)
        assert not any("weight" in entry for entry in state.encoded_values()) and state.attributes.news() == []


def test_what_only_a_newcomers_way_through_the_script_has_changed_is_undone() -> None:
    newcomer = Net()
    state = registered(newcomer)
    newcomer.calls, newcomer.drop.p = 5, 0.9
    state.load_value("net/attribute/:calls", state.encoded_values()["net/attribute/:calls"])
    state.attributes.undo({"net/attribute/:calls"})
    assert newcomer.calls == 5 and newcomer.drop.p == 0.1


def test_extra_state_is_a_value_like_any_other() -> None:
    class Counting(nn.Linear):
        count = 0

        def get_extra_state(self) -> Any:
            return {"count": self.count}

        def set_extra_state(self, state: Any) -> None:
            self.count = state["count"]

    rank, newcomer = Counting(1, 1), Counting(1, 1)
    here, there = registered(rank), registered(newcomer)
    rank.count = 3
    there.load_value("net/extra/", here.encoded_values(closely=False)["net/extra/"])
    assert newcomer.count == 3
    snapshot = there.snapshot()
    newcomer.count = 9
    there.restore(snapshot)
    assert newcomer.count == 3


def test_parts_that_come_after_the_set_up_and_large_attributes_are_reported() -> None:
    net = Net()
    state = registered(net)
    state.snapshot()
    assert state.attributes.news() == []
    net.head = nn.Linear(2, 2)
    net.hidden = torch.zeros(1 << 20)
    state.snapshot()
    state.encoded_values()
    first, second = state.attributes.news()
    assert has(first, registered_messages.PARTS_CHANGED, part="net.head", count=3)
    assert has(second, registered_messages.ATTRIBUTE_LARGE, attribute="net.:hidden")


def test_buffers_take_the_shape_that_a_rank_has_and_stay_the_scripts_own() -> None:
    rank, newcomer = Net(), Net()
    queue = newcomer.queue
    rank.queue, rank.later = torch.ones(6), torch.ones(2, 2)
    here, there = registered(rank), registered(newcomer)
    for entry, description in here.descriptions(dict(here.mutable_tensors())).items():
        there.fit(entry, description)
    assert newcomer.queue is queue and list(queue.shape) == [6] and newcomer.later is not None
    assert there.all_tensors().keys() == here.all_tensors().keys()


def test_a_tensor_as_learning_rate_is_set_in_place() -> None:
    rate = torch.tensor(0.1)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=rate)
    state = State()
    state.register("optimizer", optimizer)
    snapshot = state.snapshot()
    rate.mul_(0.5)
    state.restore(snapshot)
    assert optimizer.param_groups[0]["lr"] is rate and float(rate) == pytest.approx(0.1)


def test_a_newcomer_makes_the_groups_of_parameters_that_were_added_later() -> None:
    def made() -> tuple[State, nn.Module, torch.optim.Optimizer]:
        net = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
        optimizer = torch.optim.SGD(net[0].parameters(), lr=0.1, momentum=0.9)
        state = State()
        state.register("net", net)
        state.register("optimizer", optimizer)
        state.set_up()
        return state, net, optimizer

    (here, net, optimizer), (there, _, other) = made(), made()
    optimizer.add_param_group({"params": list(net[1].parameters()), "lr": 0.5})  # type: ignore[index]
    values = here.encoded_values()
    there.match_groups(values)
    there.load_value("optimizer/settings", values["optimizer/settings"])
    assert [group["lr"] for group in other.param_groups] == [0.1, 0.5]
    assert [len(group["params"]) for group in other.param_groups] == [2, 2]
    assert there.encoded_values() == values


def test_a_registered_tensor_that_is_trained_is_a_parameter_with_a_gradient() -> None:
    state, weight = State(), torch.ones(3, requires_grad=True)
    state.register("weight", weight)
    weight.sum().backward()  # type: ignore[no-untyped-call]
    assert dict(state.parameters()).keys() == {"weight/parameter/weight"} and not dict(state.mutable_tensors())
    assert dict(state.gradients()).keys() == {"weight/parameter/weight/gradient"}
    snapshot = state.snapshot()
    gradient = weight.grad
    assert gradient is not None
    gradient.add_(1)
    state.restore(snapshot)
    assert weight.grad is gradient and gradient.tolist() == [1.0, 1.0, 1.0]


def test_a_newcomer_has_parameters_of_the_shape_and_groups_in_the_order_that_others_have() -> None:
    states = []
    for _ in range(2):
        made, state = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), State()
        state.register("optimizer", torch.optim.SGD(made.parameters(), lr=0.1, momentum=0.9))
        states.append(registered_in(state, made))
    here, there = states
    net: Any = here.modules["net"]
    optimizer = here.optimizers["optimizer"]
    assert b"parameter" not in here.encoded_values()["optimizer/settings"]
    net[0].weight = nn.Parameter(torch.ones(5, 2))
    optimizer.param_groups[0]["params"] = list(reversed(list(net.parameters())))
    weight = next(there.modules["net"].parameters())
    values = here.encoded_values()
    there.match_groups(values)
    Preallocation(there).make(here.descriptions(here.all_tensors()))
    assert next(there.modules["net"].parameters()) is weight and weight.shape == (5, 2)
    assert there.optimizers["optimizer"].param_groups[0]["params"][-1] is weight
    assert there.encoded_values() == values == here.encoded_values() and here.encoded_values(closely=False) == values
