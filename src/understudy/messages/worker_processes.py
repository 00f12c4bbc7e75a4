"""Processes of workers and their connections with each other."""

from __future__ import annotations

from understudy.messages.base import Message

_PEER = "Usually the worker at the other end was lost, which is reported separately."
_NETWORK = "Ignore this if a loss explains it. Otherwise check the network between the nodes."
_BAD = "Data that another worker sent is invalid: corrupt memory, another version of Understudy, or a bug."
_SAME_VERSION = "Run the same version on all nodes, and check the nodes. Report it if it repeats."

CONNECTION_LOST = Message("US4860", "the connection to member {member} failed: {why}", cause=_PEER, remedy=_NETWORK)
CONNECTIONS_BROKE = Message("US4861", "connections of generation {generation} failed: {error}", cause=_PEER, remedy=_NETWORK)
BROKE_BEFORE = Message("US4862", "a connection of this generation has already failed", cause=_PEER, remedy=_NETWORK)
TOO_LARGE = Message(
    "US4863",
    "member {member} announces a message of {size} bytes; at most {most} are allowed",
    cause=_BAD,
    remedy=_SAME_VERSION,
)
STORE_UNREACHABLE = Message(
    "US4864",
    "generation {generation}: its store at {address} cannot be reached: {error}",
    cause="The workers of a generation meet in a store that one of them serves. That worker is gone, or a firewall or a wrong address "
    "blocks the connection.",
    remedy="Ignore this if a loss explains it. Otherwise check that nodes reach each other at the address and port that are named.",
)
STORE_LOST = Message(
    "US4865",
    "generation {generation}: its store is lost: {error}",
    cause="The worker that serves the store of this generation is gone, or the connection to it failed.",
    remedy=_NETWORK,
)
GROUPS_BROKE = Message(
    "US4866",
    "a connection of the script's groups failed before the vote",
    cause="A process group of the script lost a connection after its last collective. The rank does not vote for the step, and the step "
    "is redone.",
    remedy=_NETWORK,
)
NOT_CONNECTED = Message(
    "US4867",
    "generation {generation} could not be connected: {error}",
    cause="The process groups of a new generation could not be connected.",
    remedy=_NETWORK,
)
NO_NUMBERS_LEFT = Message(
    "US4868",
    "this worker has joined so many generations that its torch has no backend numbers left; move such a rank to a new worker in time with "
    "`understudy migrate`",
    cause="This torch gives each new communicator of a group a number, and the range is small. Each recovery uses one.",
    remedy="Move ranks that have been through many recoveries with `understudy migrate`, or use a torch that reconnects groups in place.",
)
RECONFIGURE = Message(
    "US4869",
    "enable_reconfigure=True: Understudy reconnects this group to other peers itself; leave out this option",
    cause="The script asks torch for groups that can be reconfigured, which Understudy does itself.",
    remedy="Leave out enable_reconfigure.",
)
TWO_BACKENDS = Message(
    "US4870",
    "there are two backends named {name!r}: {one} and {two}",
    cause="Two packages offer a communication backend with the same name.",
    remedy="Remove one of the packages, or rename its backend.",
)
OTHER_VOTE = Message(
    "US4871",
    "a rank votes with {size} bytes, this one with {wanted}",
    cause=_BAD,
    remedy=_SAME_VERSION,
)
NO_TABLE = Message("US4872", "another rank's part of a comparison is not a table of ranks", cause=_BAD, remedy=_SAME_VERSION)
UNREADABLE = Message("US4873", "data from another rank cannot be read: {error!r}", cause=_BAD, remedy=_SAME_VERSION)
INCOMPLETE = Message("US4874", "a comparison lacks the part of rank {rank}", cause=_BAD, remedy=_SAME_VERSION)
MESSAGE_IGNORED = Message(
    "US4900",
    "{worker}: ignored a message from the agent: {error}",
    cause="The agent sent something that this worker cannot read: another version of Understudy, or a bug.",
    remedy="Run the same version on all nodes.",
)
CANNOT_TAKE = Message(
    "US4901",
    "{worker} is prepared for rank {ready} and cannot take over rank {rank}: it ends",
    cause="An orchestrator that was killed had prepared this spare for a rank, and the next one did not know that. Another spare takes "
    "over the rank.",
)
IMPORT_FAILED = Message(
    "US4902",
    "warming: import {name}: {error!r}",
    cause="A worker imports the script's packages before it has a rank, and this import failed. The script may guard it.",
    remedy="Ignore this if the script runs without this module. Otherwise install it on this node.",
)
DEVICE_OPENED = Message(
    "US4903",
    "importing torch has opened {device}, which does not survive a fork",
    cause="A package that is imported with torch opens a device. Workers are forked from one process, and a device that is open there "
    "cannot be used.",
    remedy="Remove the plugin or the environment variable that lets an import of torch open the device.",
)
CANNOT_FORK = Message(
    "US4904",
    "cannot fork: {error}",
    cause="The kernel has no memory or process number left for another worker.",
    remedy="Free memory, or raise the limit of processes (ulimit -u, pids.max of the container).",
)
NO_PAGE = Message(
    "US4905",
    "{worker} has no progress page ({why}): its progress and hangs are not visible",
    cause="The worker could not create the file in which it publishes its progress: the run directory is full or not writable.",
    remedy="Free space in the run directory. Until then hangs of this worker are not detected.",
)
SCRIPT_EXITED = Message(
    "US4906",
    "the script ended with sys.exit({code!r})",
    cause="The script called sys.exit with a value other than 0 on this rank, so the job ends with that exit code.",
    remedy="Find out why the script does that. To end successfully, let all ranks reach the end of the script.",
)
ENDS_SLOWLY = Message(
    "US4911",
    "the script failed ({summary}) and has not ended after {seconds:g} s: waiting for its {what}",
    cause="Python waits for threads and exit handlers of a script before its process ends, and the job ends when they have ended.",
    remedy="Ignore this if they finish their work. Otherwise make the threads daemons, or let the script end them when it fails.",
)
DEBUGGER_LEFT = Message(
    "US4912",
    "the debugger was left, and training continues; `understudy stop` ends the job",
    cause="A person left pdb by quit, or its input ended. All other ranks wait for this one, so the script continues.",
)
NOT_LET_GO = Message(
    "US4910",
    "this worker cannot abort its old communicators, so it exits: {error}",
    cause="After a loss every rank aborts its communicators before it joins new ones. Here the abort failed or timed out, so a collective "
    "may still write to memory. A spare takes over the rank.",
    remedy="Ignore this if it happens once. Otherwise check the node's devices and links (`understudy check-node`).",
)
DEVICE_FAILED = Message(
    "US4909",
    "{device} failed with {error} {where}, so this worker leaves: {detail}",
    cause="An exception shows that the device of this rank cannot continue. The worker ends without touching it again, and a spare takes "
    "over the rank.",
    remedy="Have the device checked (`understudy check-node`, the kernel log) before it is used again.",
)
NO_TRANSACTION = Message(
    "US4907",
    "its script ended before its first transaction",
    cause="A spare was to be prepared, and the script ended without any step or section.",
    remedy="Wrap the training step in @job.step.",
)
NO_SCRIPT = Message(
    "US4908",
    "no script",
    cause="The worker was started without a script. Agents always give one.",
    remedy="Start jobs with `understudy run SCRIPT`.",
)
