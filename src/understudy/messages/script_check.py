"""Messages of `understudy run --check`: its verdicts, what led to them, and what to change in the script."""

from __future__ import annotations

from understudy.messages.base import Message

CHECK_ON_ONE_MACHINE = Message(
    "US2500",
    "--check works on one machine only: leave --nnodes and --orchestrator away, with as many ranks as fit here",
    cause="The check starts, holds and kills processes of the job, which it can do on its own machine only.",
    remedy="Leave out --nnodes and --orchestrator.",
)

CHECK_NEEDS_SPARES = Message(
    "US2501",
    "--check uses up a spare for each drill: leave --no-replenish away",
    cause="Without new spares there would be none for the kill after the drills.",
    remedy="Leave out --no-replenish.",
)

CHECK_TOO_SHORT = Message(
    "US2502",
    "--check-steps {steps}: drills need at least {least} steps in front of the kill",
    cause="The steps before the kill are too few to drill a rank in them.",
    remedy="Give a larger --check-steps.",
)

NO_SUCH_PHASE = Message(
    "US2504",
    "--kills {given}: give some of {known}, each once, by comma",
    cause="--kills names the phases of a step in which the check kills a rank, and one of these is no such phase, or is named twice.",
    remedy="Leave --kills out for all of them, or name some.",
)

CHECK_NEEDS_RANKS = Message(
    "US2503",
    "--check needs at least 2 ranks: a lone one has no replica, and nobody to keep its copies (--nproc-per-node 2)",
    cause="The check kills a rank and lets a spare take its state from another one. With one rank there is no other.",
    remedy="Give --nproc-per-node 2 or more.",
)

CALLED_OFF = Message(
    "US2505",
    "the check is called off",
    cause="The check was interrupted. It has left nothing running.",
)

RECOVERY_BEGINS = Message(
    "US2506",
    "the same with a spare: drills from step {first} on, kills in steps {kills}, and on to step {last}. A spare gets warm before each",
    cause="The undisturbed run is done, and the run that is disturbed begins.",
)

REFERENCE_AGAIN = Message(
    "US2507",
    "what differs is not registered, and may be a clock: undisturbed once more, to see whether it is the same twice",
    cause="Only values that the script has not registered differ between the two runs. A third, undisturbed run shows whether they differ "
    "by themselves.",
)

REFERENCE_BEGINS = Message(
    "US2508",
    "{ranks} ranks, {steps} steps, undisturbed; what they print is in {path}",
    cause="The check begins with a run without any disturbance, to compare with.",
)

STANDSTILL = Message(
    "US2509",
    "nothing has moved for {seconds:.0f} s (--setup-limit) while the check waited for {what}",
    cause="Neither a step nor the state of a rank or spare has changed for the time that --setup-limit allows.",
    remedy="Look at the output of the run for where the script waits. If its set-up takes longer, give a longer --setup-limit.",
)

BITWISE = Message(
    "US2510",
    "{kills}, and recovered in {seconds} at most; the {steps} steps after the first kill are the same bit by bit on {ranks} ranks "
    "({digests} digests)",
    cause="Everything that was recorded after the kill is the same as in the undisturbed run.",
)

BITWISE_BUT_NAMED = Message(
    "US2511",
    "{kills}, and recovered in {seconds} at most; the {steps} steps after the first kill are the same bit by bit on {ranks} ranks "
    "({digests} digests); but a drill has found rank {drilled} {verdict}",
    cause="The recovery was the same bit by bit, but a drill before it has found something that a newcomer would not have.",
    remedy="Do what the drill says, and check again.",
)

DIFFERS = Message(
    "US2512",
    "{kills}, and after it the training is another one: {difference}",
    cause="The rank that took over trains with something else than the rank that was killed: state that a step depends on is not "
    "registered.",
    remedy="Register what the drills and notices on the page name, or what feeds the value that differs, and check again.",
)

HELD = Message(
    "US2513",
    "{kills}, and the job is held: {reason}",
    cause="After the recovery the ranks did not agree, and the job was held instead of going on with a wrong state.",
    remedy="Register what the message names, and check again.",
)

NOT_SURVIVED = Message(
    "US2514",
    "{kills}, and the job did not survive it",
    cause="The job ended instead of recovering. The message on the page says why.",
    remedy="Do what the message says, and check again.",
)

IRREPRODUCIBLE = Message(
    "US2515",
    "the script does not compute the same twice: {difference}, in front of the kill",
    cause="Two runs differ already before anything was disturbed, so a comparison after the kill says nothing.",
    remedy="Seed what is random, do without the clock, and do not begin from a snapshot that the run before has saved.",
)

RECORDS_DIFFER = Message(
    "US2516",
    "{kills}, and {difference}",
    cause="The two runs have not recorded the same commits, so they cannot be compared.",
    remedy="Run the check again. If it happens again, the script does not run the same steps twice.",
)

OTHERWISE_DISTURBED = Message(
    "US2517",
    "{kills}, and something else happened: {incidents} incidents in place of {wanted}",
    cause="Another rank was lost during the check, for a reason that is not the check's.",
    remedy="Look at the recovery's run directory with `understudy report`, and run the check again.",
)

STEPS_UNRECORDED = Message(
    "US2518",
    "{kills}, and of steps {steps} nothing was recorded",
    cause="For these steps after the kill no digests were recorded, so nothing is known about them.",
    remedy="Run the check again.",
)

REFUSED = Message(
    "US2520",
    "Understudy does not run this script as it is (rank {rank}, with {step} steps committed)",
    cause="Understudy has ended the script because of something that it does. The message on the page says what.",
    remedy="Do what the message says, and check again.",
)

SCRIPT_FAILS = Message(
    "US2521",
    "the script fails by itself (rank {rank}, with {step} steps committed)",
    cause="The script has raised an exception before anything was disturbed.",
    remedy="Mend the script. What it has printed is in the folder of the run.",
)

SCRIPT_STANDS = Message(
    "US2522",
    "the script does not go on",
    cause="The script has made no progress for longer than --setup-limit, or the job is held.",
    remedy="Look at the message on the page, and at what the run has printed.",
)

JOB_FAILED = Message(
    "US2523",
    "the job ended with exit code {code}, with {steps} steps committed",
    cause="The job has failed before anything was disturbed.",
    remedy="Look at what the run has printed.",
)

NO_STEP = Message(
    "US2524",
    "the script ended without a step",
    cause="Not a single step was committed: the script does not use Understudy, or ends before its training loop.",
    remedy="Call understudy.join(), and mark the training step with @job.step.",
)

TOO_FEW_STEPS = Message(
    "US2525",
    "the script ended by itself after {steps} steps, and the check needs {needed}",
    cause="The script trains for fewer steps than the check has to see.",
    remedy="Let the script train longer, or give a smaller --check-steps.",
)

NOT_REACHED = Message(
    "US2526",
    "in the phase {phase} no rank was killed: the script has not come to it in step {step}",
    cause="The check waits for a rank in this phase of a step, and the step was over before the rank came to it.",
    remedy="Nothing if the script has no such phase, as a step without a backward. Otherwise give another --check-steps.",
)

NO_KILL = Message(
    "US2527",
    "no rank was killed: the script has come to none of the phases",
    cause="The check waits for a rank in each phase of --kills, and each step was over before the rank came to it.",
    remedy="Leave --kills out, so that a rank is killed at its vote, too.",
)

OTHER_KILLS = Message(
    "US2552",
    "Leave --kills out: every step has a vote",
    cause="The script has come to none of the phases that --kills names.",
)

UNDRILLED = Message(
    "US2530",
    "rank {rank} has a role that was not drilled: there were too few steps for it (--check-steps)",
    cause="There are more roles of ranks than steps before the kill, and each drill needs a step.",
    remedy="Give a larger --check-steps.",
)

VALUE_DIFFERS = Message(
    "US2531",
    "rank {rank}, step {step}: {entry} is not the same{values}",
    cause="After this step the rank held another value, or gave another result, in the run with the kill than in the undisturbed one.",
    remedy="Look for what feeds the value and is not registered.",
)

RECORDED_ONCE = Message(
    "US2532",
    "rank {rank} has told of transaction {transaction} only in the run that was {run}",
    cause="The two runs have not gone through the same transactions, so they cannot be compared there.",
    remedy="Let the script run the same steps each time, or run the check again.",
)

RECORDED_OTHERWISE = Message(
    "US2533",
    "rank {rank}, transaction {transaction}: {there} undisturbed, and {here} here",
    cause="The transaction is another step or section in one run than in the other.",
    remedy="Let the script run the same transactions in the same order each time.",
)

REGISTER_STATE = Message(
    "US2540",
    "What a step goes by and nobody has registered starts afresh on a newcomer. Look for it in what feeds what is named above: counters, "
    "averages, generators, iterators, caches. Give it to job.register, or keep it in job.state(...)",
    cause="The recovery differs, which as a rule means that state is not registered.",
    remedy="Register the state, and check again.",
)

FOLLOW_NOTICES = Message(
    "US2541",
    "Each line that was told says what to change",
    cause="The runtime has printed notices about the script, which the page shows.",
    remedy="Do what the notices say, and check again.",
)

FOLLOW_MESSAGE = Message(
    "US2542",
    "Do what the message says, and check again",
    cause="The page shows a message that says what is to be changed.",
)

FOLLOW_DRILL = Message(
    "US2543",
    "Do what the drill says, and check again",
    cause="A drill has found something, which the page shows.",
)

MEND_SCRIPT = Message(
    "US2544",
    "Mend the script: without Understudy's doing it does not run to the end of the check. Its last words are in {output}",
    cause="The script failed before anything was disturbed.",
)

MORE_STEPS = Message(
    "US2545",
    "Give it more steps (its own argument), or the check fewer (--check-steps)",
    cause="The script ended before the last step that the check needs.",
)

NO_STEPS_SEEN = Message(
    "US2546",
    "The check sees steps only: does the script call understudy.join(), and is its training step a @job.step (docs/guide.md)?",
    cause="The script ended without a committed step.",
)

SEED = Message(
    "US2547",
    "Two runs of it, neither of them disturbed, must compute the same: seed what is random, do without the clock, and do not begin from a "
    "snapshot that the run before has saved",
    cause="The script computed something else in two runs that nothing had disturbed.",
)

READ_OF_FIRST = Message(
    "US2553",
    "the second run read {files}, which the first had written: it resumed from there, so the two runs cannot be compared",
    cause="The script looks for a snapshot, or another file, that it writes itself. The two runs of a check work in the same folder.",
    remedy="Add an option to start without resuming, or write to a new folder in each run.",
)
READ = Message(
    "US2554",
    "{file}: written by the first run and read by the second",
    cause="Part of the page of a check: files that carried state from the first run into the second.",
)
FOLDER_OF_ITS_OWN = Message(
    "US2555",
    "Start the script from scratch in each run: disable its option to resume, or write its files to a new folder in each run "
    "(UNDERSTUDY_RUN_DIR differs between runs)",
    cause="The second run of the check resumed from what the first had saved.",
)
LOOK_AT_OUTPUT = Message(
    "US2548",
    "See {output}. A set-up that takes longer needs a longer --setup-limit",
    cause="The script made no progress for longer than --setup-limit.",
)

CHECK_AGAIN = Message(
    "US2549",
    "Something else than the check has disturbed it: run the check again",
    cause="The run cannot be judged, because something besides the check has disturbed it.",
)

NOTHING_TO_CHANGE = Message(
    "US2550",
    "Nothing. What begins after step {last}, another phase or an evaluation, it has not seen: --check-steps goes further",
    cause="The recovery was the same bit by bit, for as many steps as the check has seen.",
)
