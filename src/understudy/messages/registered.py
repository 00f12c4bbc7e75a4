"""Messages about registered state: attributes of modules, gradients, changes before the vote, copies for other ranks."""

from __future__ import annotations

from understudy.messages.base import Message

# -- modules -------------------------------------------------------------------------------------------------------------------

PARTS_CHANGED = Message(
    "US1501",
    "{part} (one of {count} parts of modules) was added or removed after training began: a newcomer's script does not do that, so if a "
    "rank is lost, the job ends. Create all parts before the first transaction",
    cause="A submodule, parameter or buffer was added to a registered module or removed from it after the first transaction. A newcomer "
    "creates the modules as in the setup, so the entries of its state differ.",
    remedy="Create all layers, parameters and buffers in the setup, and enable or disable them by an attribute.",
)
ATTRIBUTE_LARGE = Message(
    "US1502",
    "{attribute} is an attribute of a module or an optimizer that has changed, and it is too large to be checked in every step, or not on "
    "the host: a newcomer starts without the change. Make it a buffer of the module (register_buffer), or keep it in the optimizer's state",
    cause="A registered module or optimizer keeps a large tensor, or one on a device, as a plain attribute, and it was replaced during "
    "training.",
    remedy="Use register_buffer for tensors that belong to the module's state, and the optimizer's state for data that belongs to a "
    "parameter.",
)
ATTRIBUTE_KEEPS_GRAPH = Message(
    "US1503",
    "{attribute}, an attribute of a module, keeps its autograd graph from one step to the next. A graph cannot be sent to another "
    "worker, so a newcomer starts without this tensor. Detach the tensor at the end of the step",
    cause="A registered module keeps a tensor between steps together with the graph of operations that computed it, such as a hidden "
    "state.",
    remedy="Detach the tensor at the end of the step. For backpropagation through several steps, put these steps into one transaction.",
)
PART_MISSING = Message(
    "US1504",
    "{entry} belongs to a part of a module that this newcomer's script did not create",
    cause="The other ranks have a submodule that the newcomer's setup has not created: the setup depends on something that differs "
    "between workers, or the submodule was added after training began (US1501).",
    remedy="Create all parts of the model in the setup, in the same way on every worker.",
)
PARAMETERS_MISSING = Message(
    "US1505",
    "optimizer {optimizer} has a parameter group that this newcomer's script did not create",
    cause="The other ranks have added a parameter group to the optimizer. The newcomer has not created the parameters of this group, so "
    "it cannot add the group.",
    remedy="Create all parameters in the setup, in the same way on every worker.",
)
NOT_A_DTENSOR = Message(
    "US1506",
    "{entry} is a DTensor on its donor, but its parameter is not a DTensor on this newcomer",
    cause="The newcomer's setup did not distribute the parameter as the other ranks did: fully_shard or distribute_module was not called "
    "for it, or only under a condition.",
    remedy="Apply fully_shard and distribute_module in the setup, in the same way on every worker.",
)

# -- gradients -----------------------------------------------------------------------------------------------------------------

GRADIENTS_NOT_GIVEN = Message(
    "US1511",
    "this step adds to gradients of an earlier step, but a worker that has taken over a rank lacks these gradients. Until now, every "
    "step cleared its gradients first, so newcomers do not receive them. Accumulate gradients inside one @job.step",
    cause="Gradients are sent to newcomers only if the script keeps them between steps. Until this step, every step cleared its "
    "gradients first. So the gradients of a newcomer are empty, and this step would add to nothing there.",
    remedy="Start again from a checkpoint, and accumulate gradients inside one @job.step.",
)
GRADIENTS_NOT_KEPT = Message(
    "US1512",
    "this step adds to gradients of an earlier step, and was interrupted: it cannot be redone. Until now, every step cleared its "
    "gradients first, so there is no copy of them. Accumulate gradients inside one @job.step",
    cause="Gradients are copied at the beginning of a step only if the script keeps them between steps. Until this step, every step "
    "cleared its gradients first. A loss interrupted this step after it had added to the gradients.",
    remedy="Start again from a checkpoint, and accumulate gradients inside one @job.step.",
)

# -- changes before the vote ---------------------------------------------------------------------------------------------------

CHANGED_BEFORE_VOTE = Message(
    "US1521",
    "{function} changes {entry}{more} before its vote: from now on, a copy of this state is made at the beginning of each call of "
    "{function}",
    cause="The transaction writes parameters or optimizer state before its first optimizer.step. A call can only be redone with a copy "
    "of this state. The copy is made at the beginning of each call, and costs time and memory.",
    remedy="Change parameters after optimizer.step to avoid the copy. Nothing is wrong otherwise.",
)
CHANGED_BEFORE_VOTE_LATE = Message(
    "US1522",
    "{function} changed {entry}{more} before its vote, for the first time: this call could not have been redone. From now on, a copy of "
    "this state is made at the beginning of each call of {function}",
    cause="The transaction writes parameters or optimizer state before its first optimizer.step. In some calls, all of this state is "
    "copied, to detect such changes: in the first ones, and in those whose number is a power of two. No change was found in them. If a "
    "rank had been lost in this call, the job would have ended.",
    remedy="Change parameters after optimizer.step, or in every call, the first included.",
)
NO_COPY_TO_REDO = Message(
    "US1523",
    "{function} changed {entry} before its vote for the first time, and was interrupted: there is no copy of the previous value, so the "
    "call cannot be redone. Change parameters after optimizer.step, or in every call",
    cause="A rank was lost in the first call in which the transaction wrote parameters or optimizer state before its first optimizer.step.",
    remedy="Start again from a checkpoint, and change parameters after optimizer.step, or in every call, the first included.",
)
TAKEN_AWAY = Message(
    "US1524",
    "{function} removed {entry} before its vote, and was interrupted: the call cannot be redone",
    cause="The transaction removed a parameter or an entry of the optimizer's state before its first optimizer.step, and a rank was lost "
    "in it.",
    remedy="Start again from a checkpoint, and remove parameters or optimizer state after optimizer.step.",
)

# -- copies for other ranks ----------------------------------------------------------------------------------------------------

LOCAL_STATE_TOO_LARGE = Message(
    "US1531",
    "coverage: rank {rank}: {megabytes:.1f} MB of rank-local state would have to be copied to another rank with every vote, more than "
    "{limit:.1f} MB. Accumulate gradients inside one @job.step, keep buffers equal on all ranks, or raise UNDERSTUDY_LOCAL_LIMIT (bytes)",
    cause="State that differs from rank to rank is copied to other ranks in every step, and it is larger than the limit.",
    remedy="Keep buffers equal on all ranks where possible, or raise UNDERSTUDY_LOCAL_LIMIT and accept the time that the copies take.",
)
CARRIED_GRADIENTS_TOO_LARGE = Message(
    "US1532",
    "coverage: rank {rank}: {megabytes:.1f} MB of gradients that are carried from one transaction to the next would have to be copied to "
    "another rank with every vote, more than {limit:.1f} MB. Accumulate gradients inside one @job.step, keep buffers equal on all ranks, "
    "or raise UNDERSTUDY_LOCAL_LIMIT (bytes)",
    cause="A transaction leaves gradients for a later one. They differ from rank to rank, are copied to other ranks, and are larger than "
    "the limit.",
    remedy="Accumulate gradients inside one @job.step, or raise UNDERSTUDY_LOCAL_LIMIT and accept the time that the copies take.",
)
COPY_CORRUPT = Message(
    "US1533",
    "the digest of a buddy copy does not match its content",
    cause="A rank holds the copy of a lost rank's rank-local state. This copy was changed in memory or in transit.",
    remedy="Check the memory and the network of the node that holds the copy if it happens again. Another spare may be tried.",
)
DONORS_DIFFER = Message(
    "US1534",
    "{entry}, which rank {rank} is to receive, differs between its replicas: one of them is silently corrupted, or the value has differed "
    "from rank to rank since the last comparison",
    cause="Several ranks should have the same value for a newcomer, and their values differ.",
    remedy="Register or broadcast the value so that it stays the same on all ranks; if it should be the same, check the nodes of the ranks "
    "that differ.",
)
