"""Transactions as a rank runs them: steps, sections, votes, and code outside of them."""

from __future__ import annotations

from understudy.messages.base import Message

_VOTE = "A vote, right before the first optimizer.step, ensures that every rank can commit the step."

NESTED = Message(
    "US4570",
    "{name} is a transaction inside a transaction ({running}); call one after the other",
    cause="A function with @job.step or @job.section was called while another one was running.",
    remedy="Call transactions one after the other, never one from another.",
)
COLLECTIVES_AFTER_VOTE = Message(
    "US4571",
    "rank {rank}: {function} issues {collectives} after its vote (which precedes the first optimizer.step). If one of them failed, state "
    "would already have changed. Move them before optimizer.step, or into their own @job.section",
    cause=f"{_VOTE} A collective after it could fail when part of the state has already changed, so the step could not be redone.",
    remedy="Move these collectives before optimizer.step, or into their own @job.section.",
)
COLLECTIVES_OUTSIDE = Message(
    "US4572",
    "{count} collective(s) {where} are outside any transaction: if a rank is lost during one of them, the job ends. Wrap them in "
    "@job.section",
    cause="The script communicates between its steps, where nothing can be redone after a loss.",
    remedy="Wrap this code in @job.section, or move it into the step.",
)
FAILED_AFTER_VOTE = Message(
    "US4573",
    "rank {rank}: a collective after the vote of {running} failed, when state had already changed. Move collectives before the first "
    "optimizer.step, or into their own @job.section",
    cause=f"A rank was lost while a collective ran after the vote. {_VOTE}",
    remedy="Move these collectives before optimizer.step, or into their own @job.section, and start from a checkpoint.",
)
FAILED_OUTSIDE = Message(
    "US4574",
    "rank {rank}: a collective outside any transaction failed ({reason}). Only transactions survive a loss: wrap this code in "
    "@job.section, or move it into the step",
    cause="A rank was lost, or a connection failed, while this rank communicated outside its steps and sections.",
    remedy="Wrap this code in @job.section, or move it into the step, and start from a checkpoint.",
)
SECTION_FAILED = Message(
    "US4589",
    "rank {rank}: section {name} failed, and is skipped on all ranks",
    cause='The function raised the exception in the traceback, and its section was declared with on_error="report".',
    remedy="Fix the error in the traceback. Training continues in the meantime.",
)
CALL_AFTER_VOTE = Message(
    "US4592",
    "{name} was called in {running} after its vote: what a transaction records comes before its first optimizer step",
    cause="A transaction that was opened by job.begin had voted, so it is not redone any more, and a further call cannot be recorded.",
    remedy="Make the call before optimizer.step, or after transaction.commit in a transaction of its own.",
)
OF_ANOTHER_CALL = Message(
    "US4593",
    "{name} is a recorded call and gets a gradient, or a tensor with a graph: after a loss it would run again with those of the "
    "interrupted attempt",
    cause="A call of a transaction that was opened by job.begin uses what an earlier call has made, as loss.backward does. A redo runs "
    "both calls again, but the second one would still get the first attempt's tensor.",
    remedy="Put forward and backward into one function, and record that: transaction.call(training_step, batch). Read gradients inside the "
    "recorded function.",
)
ITERATOR_IN_CALL = Message(
    "US4596",
    "{name} is a recorded call and gets an iterator: after a loss it would run again, and find the iterator used up",
    cause="A call of a transaction that was opened by job.begin has an iterator or generator as argument, as model.parameters().",
    remedy="Pass a list: transaction.call(clip_grad_norm_, list(model.parameters()), 1.0).",
)
CHANGED_BETWEEN_CALLS = Message(
    "US4594",
    "{entry} was changed in {running} outside of a recorded call: a redo would not change it again",
    cause="The code that opened a transaction by job.begin has changed a parameter or a gradient itself, between its recorded calls or "
    "before the vote, as clip_grad_norm_ and zero_grad do.",
    remedy="Record what changes gradients and parameters, too: transaction.call(clip_grad_norm_, list(model.parameters()), 1.0).",
)
CHANGED_BY_BOTH = Message(
    "US4595",
    "{entry} is changed by recorded calls of {running} and by the code between them: a redo sets it to its values in the interrupted "
    "attempt before each call",
    cause="The owner of a transaction that was opened by job.begin changes a value that the recorded calls change, too.",
    remedy="Nothing, if the calls compute the same again. Otherwise let only one of them change the value.",
)
OPTIMIZER_NOT_REGISTERED = Message(
    "US4575",
    "{optimizer} is stepped but not registered: add it to job.register(...)",
    cause="A step uses an optimizer whose state a newcomer would not receive. The script may have registered an object that wraps it and "
    "is no torch.optim.Optimizer itself.",
    remedy="Pass the optimizer to job.register; of a wrapper, the optimizer inside.",
)
OPTIMIZER_IN_SECTION = Message(
    "US4576",
    "optimizer.step inside the {running}: a section must not change registered state; use @job.step",
    cause="A function with @job.section called optimizer.step. Only a step may change registered state.",
    remedy="Use @job.step for this function.",
)
OPTIMIZER_OUTSIDE = Message(
    "US4577",
    "optimizer.step outside a transaction: wrap the training step in @job.step",
    cause="optimizer.step was called where nothing can be redone after a loss.",
    remedy="Wrap the training step in @job.step.",
)
DRAWN_BY_HAND = Message(
    "US4578",
    "loader {name} is registered, but the script draws from it directly (iter, next): a newcomer would start at its beginning. Use "
    "job.batches, or job.iterator for next()",
    cause="The position of an iterator that the script creates itself is not known, so a newcomer could not continue at the same batch.",
    remedy="Use job.batches(loader), or job.iterator(loader) for next().",
)
OWN_ITERATOR = Message(
    "US4579",
    "the script keeps drawing from an iterator over a DataLoader that it created itself, while the job controls its loop: a newcomer's "
    "iterator starts at the beginning. Create it with job.iterator(loader)",
    cause="The position of an iterator that the script creates itself is not known, so a newcomer could not continue at the same batch.",
    remedy="Create the iterator with job.iterator(loader).",
)
OTHER_TRANSACTIONS = Message(
    "US4580",
    "rank {rank} {mine}, while rank {peer} {theirs}: every rank must run the same transactions, in the same order and number. One of them "
    "may have left its loop early",
    cause="Two ranks are at different places of the script: one has more batches, has left its loop, or has skipped a step or section.",
    remedy="Give every rank the same number of batches (DistributedSampler, drop_last), and let all of them call the same steps and "
    "sections.",
)
CHANGES_AFTER_VOTE = Message(
    "US4585",
    "{names} change(s) {point}, after the vote. From the next transaction on, this rank sends its copy to its buddies again at that "
    "point. If the rank is lost between the vote and that point, the change of that step is lost, and this is reported.",
    cause="A value that differs from rank to rank changes after the vote. Its copy was sent to the buddies with the vote, so the copy "
    "is out of date.",
    remedy="Change it before optimizer.step if no change may be lost.",
)
CHANGES_AND_RUNS_AGAIN = Message(
    "US4586",
    "{names} change(s) {point}, after the vote. From the next transaction on, this rank sends its copy to its buddies again at that "
    "point. If the rank is lost between the vote and that point, its newcomer runs the code in between again.",
    cause="Random streams, the data position or plain variables change between two transactions. A newcomer runs the code there again.",
)
OTHER_MODELS = Message(
    "US4590",
    "ranks do not create the same model: {megabytes:.1f} MB of registered state came from another rank in the setup, too much to be kept "
    "for a newcomer. Values that the script derives from it before the first step (a frozen copy, a norm) would differ on a newcomer. Seed "
    "every rank with the same value or load the same file on each, or raise UNDERSTUDY_SETUP_LIMIT (bytes)",
    cause="Ranks initialize the model differently, and DDP or the script then copies it from one rank. A newcomer cannot receive this "
    "broadcast again.",
    remedy="Seed every rank with the same value or load the same file on each rank, or raise UNDERSTUDY_SETUP_LIMIT.",
)
BACKEND_NOT_COVERED = Message(
    "US4591",
    "process groups with backend {backends} cannot be reconnected after a loss; use {usable}",
    cause="The script uses a communication backend that Understudy cannot reconnect.",
    remedy="Use one of the backends that are listed.",
)
