"""Drills on the two workers that compute a step: what has kept them from it, and what they found."""

from __future__ import annotations

from understudy.messages.base import Message

_VALUES = (
    "It is registered, and made of something that is not: give that to job.register, too. Or of a clock: leave that out of its state_dict. "
    "Or it changes behind the vote: change it in front of optimizer.step"
)
_UNSTEADY = (
    "{causes}two attempts of the spare itself are not the same: the device does not compute reproducibly, or the step is fed by something "
    "that is not registered and changes in it (a counter, a generator): {what}. "
)
_AGAIN = "Drill again: `understudy drill --rank RANK`."

COULD_NOT_BEGIN = Message(
    "US4640",
    "it could not begin: {error}",
    cause="The rank could not send its state to the spare. It went on with its step.",
    remedy=_AGAIN,
)
NOT_DRILLED = Message(
    "US4641",
    "cannot be drilled: {why}",
    cause="A step of this script cannot be computed by a spare alone.",
    remedy="Where the reason is passing, drill again later. Otherwise there is no drill for this script.",
)
GRADIENTS_WITHHELD = Message(
    "US4642",
    "cannot be drilled now: a worker that takes a rank has not got the gradients of an earlier step that are there",
    cause="The rank has come as a newcomer, and gradients that were kept from an earlier step were not handed over to it.",
    remedy="Drill again after the next optimizer.zero_grad.",
)
NO_VOTE_YET = Message(
    "US4643",
    "this rank has voted for nothing yet",
    cause="A drill needs the copy of a vote, and there was none yet.",
    remedy=_AGAIN,
)
CHANGED_UNFORESEEN = Message(
    "US4644",
    "the step has changed {entry} in front of its vote for the first time, while its state was sent. Drill again",
    cause="The step changes a parameter before its vote, and that was not known, so there was no copy of it as of the begin of the step.",
    remedy=_AGAIN,
)
NOT_TOLD_AT_VOTE = Message(
    "US4645",
    "it could not be told how the rank stands at its vote: {error!r}",
    cause="The rank could not describe its state for the comparison. It went on with its step.",
    remedy=f"{_AGAIN} Report it if it repeats.",
)
NOT_TOLD_AT_END = Message(
    "US4646",
    "it could not be told how the rank stands behind its step: {error!r}",
    cause="The rank could not describe its state for the comparison. It went on.",
    remedy=f"{_AGAIN} Report it if it repeats.",
)
DRILL_OVER = Message(
    "US4647",
    "the drill is over",
    cause="The spare is gone, or the drill was called off, while the rank waited for it.",
    remedy=_AGAIN,
)
SPARE_LATE = Message(
    "US4648",
    "the spare has not come to this step within {seconds:g} s",
    cause="The spare needs longer for its copy of the state than the rank waits at its vote.",
    remedy=f"{_AGAIN} The network between both nodes, or the node of the spare, may be slow.",
)
INTERRUPTED = Message(
    "US4649",
    "the step was interrupted: {error}",
    cause="A loss, or an exception of the script, came in the middle of the drilled step.",
    remedy=_AGAIN,
)
TOO_SLOW = Message(
    "US4650",
    "the spare takes what it is sent too slowly",
    cause="The results of collectives leave the rank slower than it produces them, and a drill must not delay training.",
    remedy="Drill again with fewer bytes (--drill-bytes).",
)
NOT_RECORDED = Message(
    "US4651",
    "a collective could not be recorded: {error!r}",
    cause="The rank could not copy what a collective gave.",
    remedy=f"{_AGAIN} Report it if it repeats.",
)
STATE_CHANGED = Message(
    "US4652",
    "its state has changed before all of it was sent",
    cause="The rank went on with its step before the spare had all of its state.",
    remedy=_AGAIN,
)
BROKEN_OFF = Message(
    "US4660",
    "rank {rank} has broken off: {error}",
    cause="The connection from the rank to the spare has ended in the middle of the drill.",
    remedy=_AGAIN,
)
OTHER_STATE = Message(
    "US4661",
    "{error}. What is registered must be the same again after load_state_dict, and nothing else may change it on a newcomer's way to the "
    "step",
    cause="The spare has loaded the state of the rank, and what it then has is something else. A newcomer would fare the same.",
    remedy="Let state_dict and load_state_dict of registered objects be exact, and change registered state in steps only.",
)
SAVES = Message(
    "US4662",
    "compared up to where the step saves (torch.save), because the rank itself does that. Save in a @job.section, and the rest of the step "
    "is compared, too",
    cause="The spare must not write a file that the rank writes, so the comparison ends there.",
    remedy="Save in a @job.section to have the whole step compared.",
)
RAISES = Message(
    "US4663",
    "the step raises {kind} on the spare: {error}",
    cause="The step has raised an exception on the spare, and not on the rank.",
    remedy="Mend what the exception says: the step uses something that a newcomer does not have.",
)
FEEDS = Message(
    "US4664",
    "{what}. The step goes by something that a newcomer does not have as the rank has it (a plain name, a closure, an object of the "
    "script's own): give it to job.register, or keep it in a registered module",
    cause="The spare has computed something else than the rank from the same registered state.",
    remedy="Find what else the step uses, and register it (job.register, job.state).",
)
VALUES = Message(
    "US4665",
    f"{{what}}. {_VALUES}",
    cause="Only registered values differ. What they are computed from is not registered, is a clock, or changes after the vote.",
    remedy="Register what the value is made of, leave clocks out of its state_dict, and change it before optimizer.step.",
)
REDO_DIFFERS = Message(
    "US4666",
    "the spare's first attempt is the rank's, and its redo is not: {what}. The step changes something that a redo does not put back (a "
    "list, a counter, a cache, its batch): give it to job.register, or change it behind the step",
    cause="After a loss survivors redo the step. Here the second attempt gave other bits than the first one.",
    remedy="Register what the step changes, or change it after the step.",
)
UNSTEADY = Message(
    "US4667",
    f"{_UNSTEADY}Give it to job.register; if there is nothing of the kind, let the device compute reproducibly "
    f"(torch.use_deterministic_algorithms)",
    cause="The spare has computed the step twice from the same state, with other bits.",
    remedy="Register counters and generators that the step uses, or use torch.use_deterministic_algorithms.",
)
OF_NO_CONSEQUENCE = Message(
    "US4668",
    "not the same, and of no consequence in this step: {what}",
    cause="Something differs on the spare that has changed nothing in the drilled step. In another step it may.",
    remedy="If the script uses it, register it.",
)
VALUES_UNSTEADY = Message(
    "US4669",
    f"{_UNSTEADY}{_VALUES}",
    cause="The spare has computed the step twice from the same state, and only registered values differ.",
    remedy="Register what the value is made of, leave clocks out of its state_dict, and change it before optimizer.step.",
)
