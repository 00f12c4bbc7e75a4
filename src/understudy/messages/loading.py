"""Messages about batches: loaders, iterators and the random streams that they draw from."""

from __future__ import annotations

from understudy.messages.base import Message

OPAQUE_BATCH = Message(
    "US1301",
    "a batch holds a {type}, whose content cannot be read: a newcomer could not prove that it draws the same batch, so if a rank is lost, "
    "the job ends. Let the loader return tensors, arrays, plain values and containers or plain objects of them",
    cause="The loader of job.batches returns objects for which no digest can be computed, so two batches cannot be compared.",
    remedy="Return tensors, arrays, plain values, containers or dataclasses of them from the dataset or its collate function.",
)
OPAQUE_DRAW = Message(
    "US1302",
    "{iterator} returns a batch that holds a {type}, whose content cannot be read: a newcomer could not prove that it draws the same "
    "batch. Let the loader return tensors, arrays, plain values and containers or plain objects of them",
    cause="The loader of job.iterator returns objects for which no digest can be computed, so two batches cannot be compared.",
    remedy="Return tensors, arrays, plain values, containers or dataclasses of them from the dataset or its collate function.",
)
OPAQUE_BATCH_REDRAWN = Message(
    "US1303",
    "rank {rank}: the batch of iteration {iteration} holds a {type}, whose content cannot be read, so this newcomer cannot prove that it "
    "is the batch that the lost rank had. Let the loader return tensors, arrays, plain values and containers or plain objects of them",
    cause="A rank was lost after US1301 had been reported. Its newcomer drew the batch again and cannot compare it.",
    remedy="Start again from a checkpoint, and let the loader return tensors, arrays, plain values or containers of them.",
)
OTHER_BATCH = Message(
    "US1311",
    "rank {rank}: the batch of iteration {iteration} that this newcomer draws is not the batch that the lost rank had (digest {found:x}, "
    "not {wanted:x}): the loader does not return the same data twice from the same position. Use torchdata's StatefulDataLoader, or seed "
    "the dataset's random choices",
    cause="The worker that takes over a rank draws the rank's last batch again, and the result differs: the dataset or sampler depends on "
    "something that is neither registered nor seeded, such as the time, the process or its own random generator.",
    remedy="Seed the dataset's random choices by epoch, index and rank, or use torchdata's StatefulDataLoader. Run `understudy drill` to "
    "test this before a loss.",
)
OTHER_BATCH_BY_FILES = Message(
    "US1312",
    "rank {rank}: the batch of iteration {iteration} that this newcomer draws is not the batch that the lost rank had (digest {found:x}, "
    "not {wanted:x})",
    cause="The worker that takes over a rank draws a different batch than the rank had, and its setup read files that this job has "
    "written since it began (US1621). Every other spare would read them, too, so the job ends.",
    remedy="Pass the snapshot to start from as an argument, and do not save to the files that the setup reads.",
)
OTHER_DRAW = Message(
    "US1313",
    "{iterator}: draw {draw} does not return what it returned before (digest {found:x}, not {wanted:x}): the loader does not return the "
    "same data twice from the same position. Use torchdata's StatefulDataLoader, or seed the dataset's random choices",
    cause="After a redo or on a newcomer, the last batch of job.iterator was drawn again, and the result differs: the dataset or sampler "
    "depends on something that is neither registered nor seeded.",
    remedy="Seed the dataset's random choices by epoch, index and rank, or use torchdata's StatefulDataLoader.",
)
OTHER_STREAMS = Message(
    "US1321",
    "rank {rank}: random streams {streams} differ from those that the lost rank handed over",
    cause="The states of these random generators were set on a newcomer, but differed when they were read back. Something in the process "
    "draws from them at the same time, or the generator does not keep the state that was set.",
    remedy="Look for threads of the script that draw random numbers from the global generators, and give them their own generators.",
)
SHARED_STREAMS = Message(
    "US1331",
    "the loader draws from {streams} while it is iterated, and so does the training. A newcomer runs through the epoch of the loader "
    "again, but without the random numbers that the training drew in between. If a batch depends on numbers drawn for earlier batches (a "
    "shuffle buffer, a random walk), the newcomer would get different batches, and the job would end: in that case give the dataset its "
    "own generator, seeded by epoch and rank",
    cause="The loader's own code draws random numbers from a generator that the training uses, too. A newcomer runs the loader's code "
    "alone, so the loader gets different numbers for earlier batches there.",
    remedy="Ignore this if each batch depends only on numbers drawn for that batch; a drill shows whether it does. Otherwise let the "
    "dataset or generator function use its own torch.Generator or random.Random, seeded by epoch and rank.",
)
WORKERS_PERSIST = Message(
    "US1332",
    "the loader keeps its worker processes from epoch to epoch (persistent_workers=True), and a newcomer starts new ones: if the dataset "
    "draws random numbers in these processes, the batches of later epochs differ on the newcomer, and the job ends. Leave "
    "persistent_workers out",
    cause="With persistent_workers=True the random state of the data processes continues from one epoch into the next. A newcomer starts "
    "new processes, which do not have it.",
    remedy="Leave persistent_workers out, or make sure that the dataset draws no random numbers in its processes.",
)
DATA_PROCESS_LOST = Message(
    "US1341",
    "{error}; this worker gives its rank to a spare",
    cause="A data process of this rank's DataLoader was killed from outside, often because the machine ran out of memory. The rank "
    "cannot continue without this process, and is treated as lost.",
    remedy="Look for the kernel's out-of-memory messages if it happens again, and reduce num_workers or the batch size. A spare takes over "
    "the rank.",
)
