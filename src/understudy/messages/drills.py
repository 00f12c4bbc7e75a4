"""Drills as the job leads them, what they have proven, and spares that are prepared for a rank."""

from __future__ import annotations

from understudy.messages.base import Message

_SPARE = "spare {spare} on node {node}"
_SEE_SPARE = "Read what the spare printed, in the run directory."

NO_DRILL = Message(
    "US4280",
    "no drill of rank {rank}: {why}",
    cause="A drill of this rank was asked for, and is not possible now.",
    remedy="Follow the reason that is given, and ask again.",
)
NO_DRILL_OF_ANY = Message(
    "US4281",
    "no drill of any rank: {why}",
    cause="A drill was asked for, and is not possible now.",
    remedy="Follow the reason that is given, and ask again.",
)
UNDER_WAY = Message(
    "US4282",
    "a drill of rank {rank} is under way",
    cause="There is one drill at a time.",
    remedy="Ask again when it is over.",
)
NOT_REPLACED = Message(
    "US4283",
    "a drill uses up its spare, and this job does not replace spares",
    cause="The spare of a drill has run the script as a rank and cannot be used again. The job was started with --no-replenish.",
    remedy="Start the job without --no-replenish if it is to be drilled.",
)
BEGINS = Message(
    "US4284",
    f"drill {{number}}: {_SPARE} will compute a step of rank {{rank}} beside it",
    cause="A drill was due or asked for. The spare computes the next step of this rank on the side; training does not depend on it.",
)
FINISHED_AND_GONE = Message(
    "US4290",
    "the rank has finished, and is gone",
    cause="The script of the drilled rank had ended before the spare was ready.",
)
COULD_NOT_COME = Message(
    "US4291",
    "the spare could not come to the step: {why}. What the script does up to its first step must be possible a second time, on another "
    "worker, while the job runs",
    cause="The script has raised an exception on the spare before its first step. A newcomer after a loss would meet the same.",
    remedy="Mend what cannot be done twice: a lock, a port, a folder that must not exist, a file that only one process may open.",
)
DRILL_SPARE_LOST = Message(
    "US4292",
    "the spare was lost: {why}",
    cause="The process of the spare has ended during the drill. The verdict is open.",
    remedy=_SEE_SPARE,
)
NOT_READY = Message(
    "US4293",
    "the spare was not ready, and nothing came of it in {seconds:g} s",
    cause="The spare did not get through the set-up of the script within --setup-limit.",
    remedy=f"{_SEE_SPARE} Raise --setup-limit if the set-up takes so long.",
)
NOTHING_CAME = Message(
    "US4294",
    "the spare was told, and nothing came of it in {seconds:g} s",
    cause="The spare was ready and did not report a verdict in time.",
    remedy=_SEE_SPARE,
)
DRILL_CALLED_OFF = Message(
    "US4295",
    "called off: {why}",
    cause="Something more important came: a loss, a migration, a drain or the end of the job. The verdict is open.",
)
SAME = Message(
    "US4300",
    "drill {number}: rank {rank} is proven at step {step}: spare {spare} computed the same bits, and its redo, too{more}",
    cause="A spare has received the state of this rank and has computed its step twice, with the same bits as the rank. A loss of it is "
    "survived bitwise.",
)
PARTLY = Message(
    "US4301",
    "drill {number}: rank {rank} is proven in part at step {step}: the same bits in {collectives} collectives{left_out}{more}",
    cause="As far as the step was compared, the spare has computed the same bits. The comparison ends where a limit was reached or the "
    "step saves.",
    remedy="To compare more, raise --drill-bytes, or save in a @job.section.",
)
NOT_SURVIVABLE = Message(
    "US4302",
    "drill {number}: rank {rank} is not survivable as it is (step {step}){more}",
    cause="The spare has computed something else than the rank, so a newcomer after a loss would, too. The detail says where they begin to "
    "differ.",
    remedy="Register what the detail names (job.register, job.state), or take it out of the step. Then drill again.",
)
NOT_REPRODUCIBLE = Message(
    "US4303",
    "drill {number}: rank {rank} is not reproducible on this device (step {step}){more}",
    cause="Two attempts of the spare itself differ: the device does not compute reproducibly, or the step is fed by something that changes "
    "in it.",
    remedy="Use torch.use_deterministic_algorithms, and register generators and counters that the step uses.",
)
NOT_PROVEN = Message(
    "US4304",
    "drill {number}: rank {rank} is not proven{more}",
    cause="The drill has ended without a verdict. Nothing speaks against the rank.",
    remedy="Drill again: `understudy drill --rank RANK`.",
)
REQUIRED = Message(
    "US4305",
    "{result}. The job ends because of --require-drill",
    cause="The job was started with --require-drill, and a drill has found that a rank would not survive a loss.",
    remedy="Mend what the drill has found. Without --require-drill the job goes on.",
)
TRY_AGAIN = Message(
    "US4306",
    "Nothing speaks against it; try again: understudy drill --rank {rank}",
    cause="The drill has ended without a verdict.",
    remedy="Run the command that is given.",
)
UNPROVEN = Message(
    "US4310",
    "rank {rank} had not been drilled: no spare had computed a step as it would have",
    cause="A rank was lost for which no drill has come to a verdict. This is no fault.",
)
FOUND_OTHERWISE = Message(
    "US4311",
    "rank {rank} had failed a drill: drill {drill} of rank {of} at step {step} found it {verdict}",
    cause="A rank was lost for which, or for whose role, the last drill has found a difference.",
    remedy="Read the verdict of that drill (`understudy report`), and mend what it names.",
)
WAS_PROVEN = Message(
    "US4312",
    "{which} had passed a drill at step {step} (drill {drill})",
    cause="A rank was lost for which, or for whose role, a drill has shown that a spare computes the same bits.",
)
WAS_PROVEN_PARTLY = Message(
    "US4313",
    "{which} had passed a drill in part at step {step} (drill {drill})",
    cause="A rank was lost for which, or for whose role, a drill has compared a part of a step, without a difference.",
)
PROOFS_VOID = Message(
    "US4314",
    "what is registered, or laid out, has changed: what drills have proven so far holds no more",
    cause="The names of the registered state, the ranks that hold them, or the layouts of frameworks have changed. A verdict holds only "
    "for what it saw.",
)
PROOFS_VOID_FOR = Message(
    "US4318",
    "{name}{more} started to change after the last drills: their results do not hold any more",
    cause="The script changes something that it did not change when the drills ran. A verdict covers only what the drill observed.",
)
REDO_PROVEN = Message(
    "US4315",
    "the redo is proven by {who} had come to the vote before the loss, with the same bits",
    cause="Survivors had computed the interrupted step before the loss. In the redo they have come to the same bits, so the newcomer gave "
    "what the lost rank had given.",
)
KEPT = Message(
    "US4330",
    f"{_SPARE}, in the set-up of rank {{rank}} for a drill, goes on as a prepared one",
    cause="A loss calls a drill off whose spare is in the set-up of a rank. If that rank is lost, this spare takes it.",
)
NOT_PREPARED = Message(
    "US4331",
    f"{_SPARE} could not be prepared for rank {{rank}}: {{why}}",
    cause="The script has failed in the set-up that a spare runs ahead of a loss. Training is not touched by that; another spare tries.",
    remedy="Mend what cannot be done twice: a lock, a port, a folder that must not exist. A newcomer after a loss would meet it, too.",
)
NOT_PREPARED_ANY_MORE = Message(
    "US4332",
    f"{_SPARE} could not be prepared for rank {{rank}}; no other is for this rank: {{why}}",
    cause="The set-up that spares run ahead of a loss has failed twice for this rank, so it is left alone.",
    remedy="Mend what cannot be done twice: a lock, a port, a folder that must not exist. A newcomer after a loss would meet it, too.",
)
FAILED_IN_A_ROW = Message(
    "US4333",
    "{count} spares in a row could not be prepared: no more are (see what they printed, in the run directory)",
    cause="No spare gets through the set-up of the script while the job runs, whichever rank it sets up for.",
    remedy="Read what the spares printed. Mend the set-up, or start the job without --prepare.",
)
NOT_PREPARED_IN_TIME = Message(
    "US4334",
    "it was not ready within {seconds:g} s",
    cause="A spare did not get through the set-up of a rank within --setup-limit.",
    remedy=f"{_SEE_SPARE} Raise --setup-limit if the set-up takes so long.",
)
STARTED_OVER = Message(
    "US4335",
    f"{_SPARE}, prepared for rank {{rank}}, is started over for another rank",
    cause="A rank needs a spare, and all that are warm are prepared for other ranks. One of them is ended, so that a fresh one can take "
    "any rank.",
)
