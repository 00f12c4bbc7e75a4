"""Messages of agents: their connection to the orchestrator, the workers that they start, and the output that they pass on."""

from __future__ import annotations

from understudy.messages.base import Message

CONNECTED = Message(
    "US5700",
    "connected to the orchestrator",
    cause="The connection that was lost, or that could not be made, is there.",
)

DISCONNECTED = Message(
    "US5701",
    "no connection to the orchestrator ({reason}); training goes on, trying again",
    cause="The orchestrator does not run, or the network to it is down.",
    remedy="Look whether the orchestrator runs, and whether this node reaches its address.",
)

REFUSED = Message(
    "US5702",
    "the orchestrator at {url} refused this node ({reason}). Is the token the one of that job (--token-file, UNDERSTUDY_TOKEN), and "
    "--node-rank free?",
    cause="The orchestrator does not accept this node's secret, does not know its job, or has another node of the same number.",
    remedy="Give every node the same secret, and each its own --node-rank.",
)

NOT_AN_ADDRESS = Message(
    "US5703",
    "{url} is not an address of an orchestrator",
    cause="The address is no URL that can be connected to.",
    remedy="Correct the address.",
)

UNTRUSTED = Message(
    "US5704",
    "the certificate of {url} is not trusted: {reason}",
    cause="The orchestrator shows a certificate that --tls or --tls-cert on this node does not vouch for.",
    remedy="Give this node the orchestrator's certificate, or that of its authority.",
)

OUTPUT_DROPPED = Message(
    "US5705",
    "{count} characters of output were dropped: the orchestrator did not take them in time",
    cause="The workers print faster than the connection to the orchestrator carries, or it was away.",
    remedy="Print less, or look at workers/*.log on the node, which has everything.",
)

NOT_A_MESSAGE = Message(
    "US5706",
    "the orchestrator sent something that is not a message: {reason}",
    cause="Agent and orchestrator are of different versions. What it sent is ignored.",
    remedy="Install the same version of Understudy on all hosts.",
)

NOT_FOR_NODE = Message(
    "US5707",
    "ignored {type} from the orchestrator: it is not for this node",
    cause="Agent and orchestrator are of different versions, or the orchestrator has confused two nodes.",
    remedy="Install the same version of Understudy on all hosts.",
)

LED_ONCE = Message(
    "US5708",
    "it led once (fence {old}), and another one leads now (fence {new})",
    cause="The agent has reached an orchestrator that another one has replaced. It looks for that one.",
)

JOB_LOST_US = Message(
    "US5710",
    "no orchestrator for {away:.0f} s, and no worker of {node} has made progress for {still:.0f} s: they are ended, because the job has "
    "gone on without them, or is over",
    cause="The node was cut off from the rest of the job.",
    remedy="Look at the network of this node.",
)

COMMAND_LINE_ENDED = Message(
    "US5711",
    "the command line has ended",
    cause="The process of `understudy run` on this node ended, so its agent ends the workers.",
    remedy="If nobody has ended it, find out who killed it: often it is the kernel, for want of memory.",
)

EXIT_HANDLERS = Message(
    "US5712",
    "waiting for the exit handlers of {workers} (at most {seconds:g} s)",
    cause="The scripts of these workers are done, and their processes have not ended yet.",
)

CUT_OFF = Message(
    "US5713",
    "all ranks finished, but processes did not end well after that: {how}",
    cause="Every script had come to its end. After that a process was killed, crashed, or ended with another exit code, in a thread, an "
    "exit handler or a finalizer. What it had not written by then is lost.",
    remedy="Look at the last output of these ranks. The training itself is complete; check files that are written at the end.",
)
FAILED_LIKE_THAT = Message(
    "US5714",
    "{ranks}: the same error",
    cause="These ranks have failed with the error that is reported as the first, at the same line.",
)
FAILED_ALSO = Message(
    "US5715",
    "{ranks} failed as well: {error}",
    cause="These ranks have failed, too. The first error of the job is reported last.",
    remedy="Look at the first error: others often follow from it.",
)
NODE_REFUSED = Message(
    "US5709",
    "the orchestrator at {url} refused this node: {reason}",
    cause="The orchestrator knows this job's token, but not this node as one that it should lead.",
    remedy="Do what the reason says: usually another --node-rank, or the same --nproc-per-node on all nodes.",
)
TEMPLATE_ENDED = Message(
    "US5720",
    "the process from which workers are forked ended with exit code {status}: {words}",
    cause="The process that imports torch once for all workers has failed. Its last words are shown.",
    remedy="Correct what they name: often torch, or a package that the script imports, cannot be imported on this node.",
)

TEMPLATE_KILLED = Message(
    "US5721",
    "the process from which workers are forked was killed again and again",
    cause="The process that imports torch once for all workers is killed whenever it is started, often by the kernel, for want of memory.",
    remedy="Look at the kernel's log and at the memory of the node or its control group.",
)

AGENT_ENDING = Message(
    "US5722",
    "the agent ends",
    cause="A worker was to be started while the agent ends.",
)

CANNOT_START = Message(
    "US5723",
    "cannot start it: {reason}",
    cause="The process of a worker could not be started on this node.",
    remedy="Do what the reason says.",
)

NO_ROOM_FOR_SPARE = Message(
    "US5724",
    "no room for a spare: it needs {needed} and {reserve} of reserve; {free} of {total} are free ({limited_by})",
    cause="The memory of the node, or of the control group that limits it, does not suffice for one more worker.",
    remedy="Give the job fewer spares, or the node or control group more memory.",
)

KERNEL_TOO_OLD = Message(
    "US5725",
    "prctl(PR_SET_CHILD_SUBREAPER) failed: this kernel is too old",
    cause="The kernel does not let a process adopt the orphans below it, without which workers might be left running.",
    remedy="Use Linux 5.3 or newer.",
)

NO_RECEPTION = Message(
    "US5726",
    "workers could not find an agent that is started again, and would end with this one: {reason}",
    cause="The socket by which workers find the next agent could not be made in the run directory.",
    remedy="Do what the reason says: the disk may be full, or its file system may have no sockets.",
)

UNMET = Message(
    "US5730",
    "{worker} did not answer the agent of {node}, which was started again: killed",
    cause="The worker did not introduce itself to the new agent in time, so it could not be led any more.",
    remedy="Nothing; a spare takes over its rank. If it happens again, the worker is blocked in code that does not let go of Python's "
    "lock.",
)

WROTE_TO_OUR_SOCKET = Message(
    "US5731",
    "{worker} wrote to Understudy's own socket: {reason}. It was ignored",
    cause="The script, or a library in it, writes to a descriptor that it did not open.",
    remedy="Find out what writes to descriptors by number in the script.",
)

CLOSED_OUR_SOCKET = Message(
    "US5732",
    "{worker} has closed its link to the agent (a script that closes all descriptors?): killed",
    cause="The script has closed descriptors that it did not open, and without the link the worker cannot be led.",
    remedy="Do not close all descriptors in the script; os.closerange and daemonizing do that.",
)

ENDED_MEANWHILE = Message(
    "US5733",
    "it ended while the agent of {node} was away{where}",
    cause="The worker ended between the end of an agent and the start of the next one, so nobody saw how.",
    remedy="Look at the worker's log in the run directory.",
)

SIGNAL_KEPT = Message(
    "US5734",
    "{signal} is kept from {ranks}: the script has no handler for it, and would end",
    cause="The signal was to be passed on to the script, as a notice of a time limit for instance, and the script has not installed a "
    "handler.",
    remedy="Install a handler in the script, or let the signal end the job with --signals-to-handle.",
)

OUTPUT_STALLED = Message(
    "US5735",
    "{count} bytes of workers' output were dropped: {way} did not take them in time",
    cause="The terminal, pipe or disk to which the output goes is too slow or blocked.",
    remedy="Look at who reads the output of `understudy run`, and at the disk.",
)

LOG_UNWRITTEN = Message(
    "US5736",
    "cannot write {path}: {reason}. Training goes on; what is printed now is not kept there",
    cause="The disk for the workers' logs is full or cannot be written.",
    remedy="Make room on the disk.",
)

CHECK_IMPOSSIBLE = Message(
    "US5740",
    "it cannot be made: {reason}",
    cause="The check of the node could not be started.",
    remedy="Do what the reason says, and let the node be checked again with `understudy undrain`.",
)

CHECK_TOO_LONG = Message(
    "US5741",
    "it takes longer than {seconds:g} s",
    cause="The check of the node did not end in time, so the node counts as failed.",
    remedy="Run `understudy check-node` on the node, to see which check does not end.",
)

CHECK_WITHOUT_REPORT = Message(
    "US5742",
    "it ended with exit code {code} and no report",
    cause="The process that checks the node has failed.",
    remedy="Run `understudy check-node` on the node, to see why.",
)

CHECK_CONTRADICTS = Message(
    "US5743",
    "its report and its exit code {code} do not agree",
    cause="The process that checks the node has said that the node passes and has failed, or the other way round.",
    remedy="Run `understudy check-node` on the node.",
)

CHECK_TRIED_NOTHING = Message(
    "US5744",
    "nothing could be tried out",
    cause="None of the checks could be run on the node.",
    remedy="Run `understudy check-node` on the node, which says what is missing.",
)

DETECTORS_LOOK = Message(
    "US5750",
    "node {node}: {detectors} for trouble",
    cause="The detectors of this node have begun.",
)

LOOK_TOO_LONG = Message(
    "US5751",
    "a look takes longer than {seconds:g} s",
    cause="The detector did not come back from a look within its limit.",
    remedy="Let the detector do less in one look, or give it a longer limit.",
)

NOT_PROVEN = Message(
    "US5769",
    "it does not show that it knows the token, as the orchestrator did before",
    cause="Something else answers in the orchestrator's place: another orchestrator, or one of an earlier version.",
    remedy="Wait until the orchestrator is back. If it was replaced by an earlier version, start this agent again.",
)

NO_ANSWER = Message(
    "US5759",
    "{device} has not answered the detector {detector} for {seconds:g} s",
    cause="A driver call about this device does not return, as it happens with a device that has failed.",
    remedy="Look at the device with its vendor's tool and at the kernel log. The node may need a reset.",
)

NOT_OF_NODE = Message(
    "US5752",
    "{evidence}: a detector of a node speaks of that node and its parts, as a note or a suspicion",
    cause="The detector returned evidence about something else, or of a severity that only an orchestrator's detector may give.",
    remedy="Return evidence about a node, device or link, with the severity note or suspect.",
)

PART_UNSTARTED = Message(
    "US5760",
    "job {job}: its part here cannot be started: {reason}",
    cause="The agent of the node could not start what the job needs here.",
    remedy="Do what the reason says: the job's folder may not be there on this node.",
)

PART_STARTED = Message(
    "US5761",
    "job {job}: node rank {node_rank}, {slots} slots, {spares} of them for spares",
    cause="A job has got slots on this node.",
)

PART_ENDED = Message(
    "US5762",
    "job {job}: its part here has ended",
    cause="The job is over, or has left this node.",
)

PART_KILLED_OFTEN = Message(
    "US5763",
    "job {job}: its part here was killed {times}",
    cause="The process that looks after the job's workers on this node was started again each time, and now it is given up.",
    remedy="Find out who kills it: often it is the kernel, for want of memory.",
)

PART_NOT_RESTARTED = Message(
    "US5764",
    "job {job}: its part here was killed, and cannot be started again: {reason}",
    cause="The process that looks after the job's workers on this node was killed, and starting it failed.",
    remedy="Do what the reason says.",
)

PART_RESTARTED = Message(
    "US5765",
    "job {job}: its part here was killed; training goes on, and it is started again",
    cause="The process that looks after the job's workers on this node was killed. The workers go on, and the next one takes them up.",
    remedy="If it happens again, find out who kills it.",
)

PART_TAKEN_UP = Message(
    "US5766",
    "job {job}: its part is here still, and is taken up again",
    cause="The agent of the node was started again, and the job's part has gone on meanwhile.",
)

PART_RESTARTED_WITH_AGENT = Message(
    "US5767",
    "job {job}: its part was killed, its workers are here still: it is started again",
    cause="The agent of the node was started again, and found workers of the job without the process that looks after them.",
)

NOT_FOR_A_NODE = Message(
    "US5768",
    "ignored {type} from the orchestrator: it is not for a node",
    cause="Agent and orchestrator are of different versions.",
    remedy="Install the same version of Understudy on all hosts.",
)

FINISHED_UNLED = Message(
    "US5790",
    "all {ranks} ranks finished; no orchestrator could be started to note it in the journal",
    cause="The job's journal is damaged, so its orchestrator could not be started, and the ranks have finished without it.",
    remedy="The results are there. Look at the disk of the run directory.",
)

FAILED_UNLED = Message(
    "US5791",
    "the script of {worker} failed, and no orchestrator could be started: the job ends",
    cause="The job's journal is damaged, so its orchestrator could not be started, and a rank's script raised an exception.",
    remedy="Read the exception above, and look at the disk of the run directory.",
)
