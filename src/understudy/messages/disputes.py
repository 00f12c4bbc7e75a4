"""Replicas that differ, redos that differ, and jobs that are held for a person to decide."""

from __future__ import annotations

from understudy.messages.base import Message

_REDO = (
    "rank {rank} (worker {worker}) has redone transaction {transaction}, behind step {step}, and has not come to what it had come to "
    "before the loss: {detail}"
)
_GOES_ON = ": the job goes on with the redo"

HELD = Message(
    "US4360",
    "{found}. It cannot be told who is right, {sides}: the job is held. `understudy believe --rank RANK` goes on with what that rank "
    "holds, `understudy stop` ends the job",
    cause="Replicas hold different bits, and no side has the majority. One of them is corrupt, or the script computes something else on "
    "some ranks.",
    remedy="Find out which rank is right: check the nodes, or compare with a checkpoint. Then run `understudy believe --rank RANK`, or "
    "`understudy stop` and start from a checkpoint.",
)
NO_REPLICA = Message(
    "US4361",
    "rank {rank}: random streams and data position have no replica; they are what {worker} handed over with its last vote (the batch is "
    "drawn again and compared)",
    cause="A rank was replaced because its state differed from that of its replicas. What only this rank has comes from that worker "
    "itself.",
)
REDO_DIFFERS = Message(
    "US4362",
    _REDO,
    cause="A survivor had computed this step before a loss, and its redo gave other bits.",
    remedy="See the advice of the first rank that reported a difference in this incident.",
)
REDO_HELD = Message(
    "US4363",
    f"{_REDO}. The step is fed by something that is not registered and changes in it, or is not computed reproducibly. Only the redo is "
    f"left, and nobody "
    "has committed it: the job is held. `understudy believe --rank {rank}` goes on with the redo, `understudy stop` ends the job",
    cause="A survivor had computed this step before a loss, and its redo gave other bits: a counter, a cache or a generator that no one "
    "has registered, data that is read differently, or kernels that are not deterministic.",
    remedy="If the difference does not matter, run `understudy believe --rank RANK`. Otherwise stop the job, register what the detail "
    "names, and start from a checkpoint.",
)
REDO_NOT_REPRODUCIBLE = Message(
    "US4364",
    f"{_REDO}. Drill {{drill}} of rank {{of}} has found at step {{drilled}} that it is not reproducible on this device{_GOES_ON}",
    cause="A drill has shown before that this device does not give the same bits twice, so the redo could not.",
    remedy="For bitwise recoveries use torch.use_deterministic_algorithms.",
)
REDO_AFTER_BREAK = Message(
    "US4365",
    f"{_REDO}. Communication broke without a loss, and what it gave by then may be in what had been computed before{_GOES_ON}",
    cause="The first attempt may have used data of a collective that broke, so it is no measure for the redo.",
)
REDO_AFTER_CORRUPTION = Message(
    "US4366",
    f"{_REDO}. Rank {{corrupt}} was corrupt, and what it gave was in what had been computed before{_GOES_ON}",
    cause="The first attempt contained what a corrupt rank had sent. That rank was replaced, so the redo differs and is right.",
)
REDO_UNPROVEN = Message(
    "US4367",
    f"{_REDO}. No drill has shown that this collective gets the same twice, so it may be of no consequence, as with times that are summed "
    f"up for a person; or the state is wrong from here on{_GOES_ON}",
    cause="A step was interrupted and done again, and its redo put other numbers into a collective than the interrupted attempt. Something "
    "that is not registered changes in the step, or the numbers are of no consequence.",
    remedy="Run `understudy drill` for this rank: it computes a step twice and says what differs. Register what it names. If the state "
    "matters, go back to a checkpoint from before this incident.",
)
REDO_AS_DRILLED = Message(
    "US4368",
    f"{_REDO}. Drill {{drill}} of rank {{of}} had found at step {{drilled}} that it is not survivable as it is: {{found}}. The state may "
    f"be wrong from here on{_GOES_ON}",
    cause="A drill had found that a recovery of this rank would not be bitwise, and the redo after a loss has put other numbers into a "
    "collective than the interrupted attempt.",
    remedy="Do what the drill says. If the state matters, go back to a checkpoint from before this incident.",
)
NOT_HELD = Message(
    "US4380",
    "the job is not held: nothing is in dispute",
    cause="`understudy believe` was called, and the job does not wait for a decision.",
)
NOT_IN_DISPUTE = Message(
    "US4381",
    "rank {rank} is not one of those that differ: {ranks}",
    cause="`understudy believe` was called with a rank that holds no side in this dispute.",
    remedy="Name one of the ranks that are listed.",
)
HOLDER_LOST = Message(
    "US4382",
    "the worker that held rank {rank} when it was compared is lost: believe another one",
    cause="The worker whose state was compared is gone, so its side of the dispute is not there any more.",
    remedy="Name a rank of the other side.",
)
CANNOT_BE_BELIEVED = Message(
    "US4383",
    "rank {rank} cannot be believed: {why}",
    cause="`understudy believe` was called with a rank that cannot decide the dispute.",
    remedy="Follow the reason that is given.",
)
BELIEVED = Message(
    "US4384",
    "rank {rank} is believed",
    cause="A person has decided that this rank is right. Ranks that hold something else are replaced, and the job goes on.",
)
BELIEVED_FOR = Message(
    "US4385",
    "rank {rank} is believed: {reason}",
    cause="A person has decided that this rank is right, for this reason. Ranks that hold something else are replaced, and the job goes "
    "on.",
)
HOLDS_ANOTHER = Message(
    "US4386",
    "it holds something else than rank {rank}, which is believed ({found})",
    cause="A person has decided a dispute, and this rank was on the other side. It is replaced.",
)
