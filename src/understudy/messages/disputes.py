"""Replicas that differ, redos that differ, and jobs that are paused until an operator decides."""

from __future__ import annotations

from understudy.messages.base import Message

_REDO = (
    "rank {rank} (worker {worker}) redid transaction {transaction}, after step {step}, and the result differs from the one before the "
    "loss: {detail}"
)
_GOES_ON = ": the job continues with the redo"

HELD = Message(
    "US4360",
    "{found}. It cannot be decided which side is right, {sides}: the job is paused. Run `understudy resolve --keep-rank RANK` to continue "
    "with the state of that rank, or `understudy stop` to end the job",
    cause="Replicas hold different bits, and no side has the majority. One of them is corrupt, or the script computes something different "
    "on some ranks.",
    remedy="Find out which rank is right: check the nodes, or compare with a checkpoint. Then run `understudy resolve --keep-rank RANK`, "
    "or `understudy stop` and start from a checkpoint.",
)
NO_REPLICA = Message(
    "US4361",
    "rank {rank}: random streams and data position have no replica; they are taken from the last vote of {worker} (the batch is drawn "
    "again and compared)",
    cause="A rank was replaced because its state differed from that of its replicas. State that only this rank has is taken from the "
    "replaced worker itself.",
)
REDO_DIFFERS = Message(
    "US4362",
    _REDO,
    cause="A survivor had computed this step before a loss, and its redo gave different bits.",
    remedy="Follow the remedy of the first rank that reported a difference in this incident.",
)
REDO_HELD = Message(
    "US4363",
    f"{_REDO}. The step depends on something unregistered that it changes itself, or is not computed reproducibly. Only the redo is "
    f"left, and no rank has committed it: the job is paused. Run `understudy resolve --keep-rank {{rank}}` to continue with the redo, or "
    "`understudy stop` to end the job",
    cause="A survivor had computed this step before a loss, and its redo gave different bits: an unregistered counter, cache or generator, "
    "data that is read differently, or kernels that are not deterministic.",
    remedy="If the difference does not matter, run `understudy resolve --keep-rank RANK` with any rank: all have the same state. Otherwise "
    "stop the job, register what the detail names, and start from a checkpoint.",
)
REDO_NOT_REPRODUCIBLE = Message(
    "US4364",
    f"{_REDO}. Drill {{drill}} of rank {{of}} found at step {{drilled}} that it is not reproducible on this device{_GOES_ON}",
    cause="A drill has shown that this device does not give the same bits twice, so the redo could not be the same.",
    remedy="Use torch.use_deterministic_algorithms to get bitwise identical recoveries.",
)
REDO_AFTER_BREAK = Message(
    "US4365",
    f"{_REDO}. Communication failed without a loss, and the first attempt may contain the results of failed collectives{_GOES_ON}",
    cause="The first attempt may have used data of a collective that failed, so the redo cannot be compared with it.",
)
REDO_AFTER_CORRUPTION = Message(
    "US4366",
    f"{_REDO}. Rank {{corrupt}} was corrupt, and the first attempt contained its data{_GOES_ON}",
    cause="The first attempt contained data that a corrupt rank had sent. That rank was replaced, so the redo differs and is right.",
)
REDO_UNPROVEN = Message(
    "US4367",
    f"{_REDO}. No drill has shown that this collective receives the same input twice. The difference may be harmless, as with timings that "
    f"are summed for a log; or the state is wrong from here on{_GOES_ON}",
    cause="A step was interrupted and redone, and the inputs of a collective in the redo differ from those of the interrupted attempt. "
    "Something that is not registered changes in the step, or the numbers do not matter.",
    remedy="Run `understudy drill` for this rank: it computes a step twice and reports the difference. Register what it names. If the "
    "state matters, return to a checkpoint from before this incident.",
)
REDO_AS_DRILLED = Message(
    "US4368",
    f"{_REDO}. Drill {{drill}} of rank {{of}} had found at step {{drilled}} that the job would not survive its loss: {{found}}. The state "
    f"may be wrong from here on{_GOES_ON}",
    cause="A drill had found that a recovery of this rank would not be bitwise identical, and the inputs of a collective in the redo "
    "after a loss differ from those of the interrupted attempt.",
    remedy="Follow the remedy of the drill. If the state matters, return to a checkpoint from before this incident.",
)
NOT_HELD = Message(
    "US4380",
    "the job is not paused: nothing is in dispute",
    cause="`understudy resolve` was called, but the job is not waiting for a decision.",
)
NOT_IN_DISPUTE = Message(
    "US4381",
    "rank {rank} is not one of the ranks that differ: {ranks}",
    cause="`understudy resolve` was called with a rank that is not part of this dispute.",
    remedy="Use one of the ranks that are listed.",
)
HOLDER_LOST = Message(
    "US4382",
    "the worker that held rank {rank} when it was compared is lost: choose another rank",
    cause="The worker whose state was compared is gone, so its side of the dispute no longer exists.",
    remedy="Use a rank of the other side.",
)
CANNOT_BE_BELIEVED = Message(
    "US4383",
    "rank {rank} cannot be chosen: {why}",
    cause="`understudy resolve` was called with a rank that cannot decide the dispute.",
    remedy="Choose another rank, or fix the cause that the message gives.",
)
BELIEVED = Message(
    "US4384",
    "rank {rank} is right, by decision of an operator",
    cause="An operator decided that this rank is right. Ranks with different state are replaced, and the job continues.",
)
BELIEVED_FOR = Message(
    "US4385",
    "rank {rank} is right, by decision of an operator: {reason}",
    cause="An operator decided that this rank is right, for this reason. Ranks with different state are replaced, and the job continues.",
)
HOLDS_ANOTHER = Message(
    "US4386",
    "its state differs from that of rank {rank}, which is right by decision of an operator ({found})",
    cause="An operator decided a dispute, and this rank was on the other side. It is replaced.",
)
