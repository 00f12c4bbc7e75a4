"""DDP, FSDP2 and pipelines: parts of them that a newcomer could not take over, and differences between ranks."""

from __future__ import annotations

from understudy.messages.base import Message

_OTHER_VERSION = "Data that another worker sent about a framework does not have the form that this version expects."
_SAME_VERSION = "Run the same version of Understudy on all workers. Report it if it repeats."
_LATE = "a spare that takes over a rank later could not create it in the same state. Create it before the first transaction"
_LATE_CAUSE = "It was constructed after the first step or section had begun. A newcomer runs the script only up to that point."

NOT_MADE_THERE = Message(
    "US4780",
    "rank {rank} has created a {title}, rank {other} has not",
    cause="Ranks that use an object of a framework together have not all constructed it.",
    remedy="Construct it on all of these ranks, in the same order.",
)
FACT_DIFFERS = Message(
    "US4781",
    "{title}: {fact} is {one} on rank {rank}, is {two} on rank {other}",
    cause="Ranks that use an object of a framework together have created it with different settings, or its state differs between them.",
    remedy="Construct it with the same arguments on all ranks, and let them run the same steps.",
)
TWO_ADAPTERS = Message(
    "US4782",
    "{adapter} describes {name!r}, which the adapter of another framework has already described",
    cause="An adapter hands over the state of a framework (docs/internals/extending.md). Two adapters, one of them from another package, "
    "use the same name for what they describe.",
    remedy="Use names that begin with the name of your package.",
)
DDP_LATE = Message(
    "US4790",
    f"DistributedDataParallel over {{module}} is created after training began: {_LATE}, and add it to job.register(...)",
    cause=_LATE_CAUSE,
    remedy="Construct it before the first step, and pass it to job.register.",
)
UNEVEN_INPUTS = Message(
    "US4791",
    "join() of torch.distributed.algorithms (uneven inputs) lets ranks without a batch take part in the others' collectives, outside all "
    "transactions: give every rank the same number of batches, as DistributedSampler does, or drop the rest",
    cause="Join lets a rank without batches answer collectives that are not part of any of its steps, where nothing can be redone.",
    remedy="Give every rank the same number of batches (DistributedSampler, drop_last).",
)
DDP_NOT_REGISTERED = Message(
    "US4792",
    "DistributedDataParallel over {modules} is not registered, so its state could not be sent to a spare: add it to job.register(...)",
    cause="A DistributedDataParallel was constructed, and neither it nor its module is registered.",
    remedy="Pass it to job.register.",
)
HOOK_KEEPS = Message(
    "US4793",
    "DistributedDataParallel over {module} has the communication hook {hook}, which keeps {kept} between two steps: a spare would not have "
    "that state. Register that object (it needs state_dict and load_state_dict), or use a hook without a state",
    cause="A communication hook such as PowerSGD keeps state from step to step that is not registered.",
    remedy="Register the object that the hook keeps, or use a stateless hook.",
)
STATIC_NOT_DRILLED = Message(
    "US4794",
    "DDP with static_graph=True behaves differently in its first step, which all its ranks repeat together when a newcomer joins",
    cause="With static_graph=True a DDP counts gradients in its first step. A spare that computes alone cannot take part in that.",
)
STAYS_GATHERED = Message(
    "US4799",
    "the parameters of a fully_shard module that is not trained stay gathered from step to step, and a spare would have to gather them",
    cause="FSDP2 frees the parameters of its root module in the backward. A frozen model has no backward.",
    remedy="Call set_reshard_after_forward(True) on that model: then it gathers them in each step, and steps can be drilled and compared.",
)
NOT_SETTLED = Message(
    "US4795",
    "a DDP has not completed its first step yet",
    cause="A DDP determines its buckets in its first steps. Until then a drill would compare something that changes.",
    remedy="Drill again a few steps later.",
)
BUILTIN_HOOK = Message(
    "US4796",
    "DDP's built-in hook {hook} receives results in C++, only from the communicator",
    cause="A built-in communication hook (fp16, allreduce in C++) bypasses the mechanism with which a drill replays collectives.",
    remedy="Use the hook of the same name from torch.distributed.algorithms.ddp_comm_hooks, written in Python, to allow drills.",
)
STATIC_LOST = Message(
    "US4797",
    "DistributedDataParallel over {module} with static_graph=True: a rank was lost between its first backward and its rebuild of buckets "
    "after the second, and a spare cannot repeat these steps. Start the job again",
    cause="With static_graph=True a DDP counts gradients only once, and a rank was lost in exactly these steps.",
    remedy="Start the job again.",
)
NOT_A_LAYOUT = Message(
    "US4798",
    "this is not a layout of a DistributedDataParallel: {found}",
    cause=_OTHER_VERSION,
    remedy=_SAME_VERSION,
)
FSDP1 = Message(
    "US4810",
    "FullyShardedDataParallel (FSDP1) is not covered: use torch.distributed.fsdp.fully_shard (FSDP2)",
    cause="The script registers a module of FSDP1, whose flat parameters Understudy does not know.",
    remedy="Use torch.distributed.fsdp.fully_shard.",
)
UNREDUCED = Message(
    "US4811",
    "fully_shard: gradients are accumulated without reduction over more than one transaction (set_requires_gradient_sync or "
    "set_requires_all_reduce), and a spare would not have them. Put all micro-batches up to the reduction into one @job.step",
    cause="Gradients that wait for their reduction exist in this process only, and the step ends before they are reduced.",
    remedy="Put all micro-batches up to the reduction into one @job.step.",
)
NOT_SWITCHES = Message(
    "US4812",
    "these are not settings of FSDP2: {found}",
    cause=_OTHER_VERSION,
    remedy=_SAME_VERSION,
)
SCHEDULE_LATE = Message(
    "US4820",
    f"{{schedule}} is created after training began: {_LATE}",
    cause=_LATE_CAUSE,
    remedy="Construct the schedule before the first step.",
)
OTHER_STAGE = Message(
    "US4821",
    "{schedule} has a stage of type {stage}: a spare could not set it up in the middle of training. Create stages with "
    "torch.distributed.pipelining.PipelineStage",
    cause="A pipeline schedule has a stage of a class that Understudy does not know.",
    remedy="Create stages with torch.distributed.pipelining.PipelineStage.",
)
DTENSORS = Message(
    "US4822",
    "stage {stage} of a pipeline exchanges DTensors with its neighbours, which is not covered: give it plain tensors",
    cause="A newcomer's stage receives the shapes that its neighbours have agreed on, and for DTensors these are not sufficient.",
    remedy="Let stages exchange plain tensors.",
)
NOT_A_STAGE = Message(
    "US4823",
    "this is not a stage of a pipeline: {found}",
    cause=_OTHER_VERSION,
    remedy=_SAME_VERSION,
)
NOT_A_SET_UP = Message(
    "US4824",
    "this is not a setup of a pipeline: {found}",
    cause=_OTHER_VERSION,
    remedy=_SAME_VERSION,
)
