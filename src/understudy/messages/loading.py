"""Messages about batches: loaders, iterators and the random streams that they draw from."""

from __future__ import annotations

from understudy.messages.base import Message

OPAQUE_BATCH = Message(
    "US1301",
    "a batch holds a {type}, whose content cannot be read: a newcomer could not prove that it draws the same batch, so if a rank is "
    "lost, the job ends. Let the loader give tensors, arrays, plain values and containers or plain objects of them",
    cause="The loader of job.batches gives objects of which no digest can be computed, so two batches cannot be compared.",
    remedy="Return tensors, arrays, plain values, containers or dataclasses of them from the dataset or its collate function.",
)
OPAQUE_DRAW = Message(
    "US1302",
    "{iterator} gives a batch that holds a {type}, whose content cannot be read: a newcomer could not prove that it draws the same "
    "batch. Let the loader give tensors, arrays, plain values and containers or plain objects of them",
    cause="The loader of job.iterator gives objects of which no digest can be computed, so two batches cannot be compared.",
    remedy="Return tensors, arrays, plain values, containers or dataclasses of them from the dataset or its collate function.",
)
OPAQUE_BATCH_REDRAWN = Message(
    "US1303",
    "rank {rank}: the batch of iteration {iteration} holds a {type}, whose content cannot be read, so this newcomer cannot prove that it "
    "is the one that the lost rank had. Let the loader give tensors, arrays, plain values and containers or plain objects of them",
    cause="A rank was lost after US1301 had been reported. Its replacement drew the batch again and cannot compare it.",
    remedy="Start again from a checkpoint, and let the loader give tensors, arrays, plain values or containers of them.",
)
OTHER_BATCH = Message(
    "US1311",
    "rank {rank}: the batch of iteration {iteration} that this newcomer draws is not the one that the lost rank had (digest {found:x}, "
    "not {wanted:x}): the loader does not give the same data twice from the same position. Use torchdata's StatefulDataLoader, or seed "
    "what the dataset draws at random",
    cause="The worker that takes over a rank draws the rank's last batch again, and it is another one: the dataset or sampler depends on "
    "something that is neither registered nor seeded, such as time, the process or a generator of its own.",
    remedy="Seed the dataset's random choices by epoch, index and rank, or use torchdata's StatefulDataLoader. `understudy drill` tries "
    "this before a loss does.",
)
OTHER_BATCH_BY_FILES = Message(
    "US1312",
    "rank {rank}: the batch of iteration {iteration} that this newcomer draws is not the one that the lost rank had (digest {found:x}, "
    "not {wanted:x})",
    cause="The worker that takes over a rank draws another batch than the rank had, and its set-up has read files that this job has "
    "written since it began (US1621). Every other spare would read them, too, so the job ends.",
    remedy="Give the snapshot to begin with as an argument, and save to other files than the set-up reads.",
)
OTHER_DRAW = Message(
    "US1313",
    "{iterator}: draw {draw} does not give what it gave before (digest {found:x}, not {wanted:x}): the loader does not give the same "
    "data twice from the same position. Use torchdata's StatefulDataLoader, or seed what the dataset draws at random",
    cause="After a redo or on a replacement, the last batch of job.iterator was drawn again, and it is another one: the dataset or "
    "sampler depends on something that is neither registered nor seeded.",
    remedy="Seed the dataset's random choices by epoch, index and rank, or use torchdata's StatefulDataLoader.",
)
OTHER_STREAMS = Message(
    "US1321",
    "rank {rank}: random streams {streams} are not what the lost rank handed over",
    cause="The states of these random generators were set on a replacement and read back, and are not the same. Something in the process "
    "draws from them at the same time, or the generator does not keep the state that it is given.",
    remedy="Look for threads of the script that draw random numbers from the global generators, and give them generators of their own.",
)
SHARED_STREAMS = Message(
    "US1331",
    "the loader draws from {streams} while it is iterated, and so does the training: a newcomer draws its epoch again without what the "
    "training has drawn in between. If a batch goes by what was drawn for those before it (a buffer that is shuffled, a random walk), it "
    "would get other batches, and the job would end: then give the dataset a generator of its own, seeded by epoch and rank",
    cause="The loader's own code draws from a random generator that the training draws from, too. A replacement runs the loader's code "
    "alone, so what the loader draws for earlier batches is not the same there.",
    remedy="Nothing, if each batch depends only on what is drawn for it; a drill shows that. Else let the dataset or generator function "
    "use a torch.Generator or random.Random of its own, seeded by epoch and rank.",
)
WORKERS_PERSIST = Message(
    "US1332",
    "the loader keeps its worker processes from epoch to epoch (persistent_workers=True), and a newcomer's begin anew: if the dataset "
    "draws at random in them, the batch of a later epoch is not the same there, and the job ends. Leave persistent_workers out",
    cause="With persistent_workers=True the random state of the data processes continues from one epoch into the next. A replacement "
    "starts new processes, which do not have it.",
    remedy="Leave persistent_workers out, or make sure that the dataset draws nothing at random in its processes.",
)
DATA_PROCESS_LOST = Message(
    "US1341",
    "{error}; this worker leaves its rank to a spare",
    cause="A data process of this rank's DataLoader was killed from outside, often because the machine ran out of memory. The rank "
    "cannot continue without it, and counts as lost.",
    remedy="A spare takes over. If it happens again, look for the kernel's out-of-memory messages and reduce num_workers or the batch "
    "size.",
)
