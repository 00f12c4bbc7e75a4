"""Findings of checks of a node (`understudy check-node`), except for the network."""

from __future__ import annotations

from understudy.messages.base import Message

_REPLACE = "Take the node out of service and have it examined."

# Any check.
NOT_STARTED = Message(
    "US3600",
    "it could not be started: {reason}",
    cause="The system refused to start the process that runs the check.",
    remedy="Fix the cause that the operating system reported, for example too little memory or too many processes.",
)
NOT_DONE = Message(
    "US3601",
    "it did not complete within {seconds:.0f} s{stuck}",
    cause="The check took longer than its limit and was ended. If it cannot be ended, it is waiting in the kernel for a device or a file "
    "server that does not respond.",
    remedy="Find out what is slow: the disk, the driver of the GPU, or other work on the node. Then check again.",
)
TOO_MUCH_OUTPUT = Message(
    "US3602",
    "it printed more than {most} bytes",
    cause="The process of the check wrote more than a result can contain.",
    remedy="Report this as a bug.",
)
KILLED = Message(
    "US3603",
    "its process was ended by {signal}",
    cause="One of the tests made the process of the check crash, or the process was killed. With SIGKILL, memory may have been short.",
    remedy="Check the kernel log (dmesg), and check the node again.",
)
BAD_MEMORY = Message(
    "US3604",
    "its process was ended by {signal}: the kernel found memory that it cannot correct",
    cause="The kernel ended the process with SIGBUS, as it does when memory has an error that cannot be corrected.",
    remedy=_REPLACE,
)
NO_RESULT = Message(
    "US3605",
    "its process ended with exit code {exit_code} and no readable output",
    cause="The process of the check ended without a result.",
    remedy="Read its output on stderr.",
)
RAISED = Message(
    "US3606",
    "it could not run: {kind}: {reason}",
    cause="The check ended with an exception.",
    remedy="Read the exception, which says what is missing. If it does not come from the operating system, report it as a bug.",
)
MORE_FAILURES = Message(
    "US3607",
    "and {count} more like these",
    cause="The check found more failures than are listed.",
)
NO_PEER_ADDRESS = Message(
    "US3608",
    "{peer!a} is not a peer: give HOST:PORT, and an IPv6 address in brackets",
    cause="A value of --peer cannot be read.",
    remedy="Write it as node7:9300 or [::1]:9300.",
)
NO_CHECKS = Message(
    "US3609",
    "--only and --skip leave no check to run",
    cause="--only and --skip together exclude every check.",
    remedy="Leave out one of the two.",
)
OPTIONS_UNUSABLE = Message(
    "US3610",
    "--json: {problem}",
    cause="The options of a check that an agent starts cannot be read: agent and checks have different versions, or it was started by "
    "hand.",
    remedy="Use `understudy check-node`, and the same version of Understudy on all nodes.",
)

# compute
CPUS_COMPUTE = Message(
    "US3620",
    "{cpus} CPUs compute correctly, {passes} passes, {least:.1f} to {most:.1f} ms each",
    cause="Every CPU computed the known result each time.",
)
CPU_WRONG = Message(
    "US3621",
    "CPU {cpu} computes wrong results ({found}... instead of {wanted}...)",
    cause="The result of this CPU differs from the known result.",
    remedy=_REPLACE,
)
ALL_CPUS_WRONG = Message(
    "US3622",
    "all CPUs compute the same wrong result ({found}...): the likely cause is numpy {numpy}",
    cause="All CPUs agree with each other but not with the known result, so the library is more likely wrong than all of them.",
    remedy="Install another version of numpy, and report this as a bug.",
)
CPU_SLOW = Message(
    "US3623",
    "CPU {cpu} takes {ratio:.1f} times as long as the others",
    cause="This CPU needed much more processor time for the same work than the others. Slightly slower CPUs only give a note: other work "
    "on the same core, and different kinds of cores, have the same effect.",
    remedy="Check its temperature and clock, and check again without other work on the node.",
)
CPU_LEFT_OUT = Message(
    "US3624",
    "CPU {cpu} is left out: {reason}",
    cause="The CPU was taken away from this process while the check was running.",
)
NO_CPU = Message(
    "US3625",
    "there was no CPU to test",
    cause="All CPUs were taken away from this process while the check was running.",
    remedy="Check again.",
)

# memory
MEMORY_HOLDS = Message(
    "US3640",
    "{size} MiB hold the data that is written to them",
    cause="All data that was written to the tested memory was read back unchanged.",
)
MEMORY_WRONG = Message(
    "US3641",
    "{words} words in block {block} of {blocks} do not hold the {pattern} that was written (bits that differ: {bits:#x})",
    cause="The data that was read from memory differs from the data that was written.",
    remedy=_REPLACE,
)
MEMORY_SCARCE = Message(
    "US3642",
    "memory became scarce: {done} of {wanted} blocks of {size} MiB were tested",
    cause="Other processes took memory while the check was running, so it stopped taking more.",
)
NO_MEMORY_TRIED = Message(
    "US3643",
    "there was no memory to test",
    cause="Other processes took all free memory before the first block could be taken.",
    remedy="Check again when the node is idle.",
)
TOO_LITTLE_MEMORY = Message(
    "US3644",
    "less than {least} MiB could be tested: {free} MiB are free",
    cause="Too little memory is free to test a part of it without harm to other processes.",
    remedy="Check again when the node is idle, or raise --memory-share.",
)

# disk
DISK_HOLDS = Message(
    "US3650",
    "{size} MiB in {folder} are read back as they were written",
    cause="All data that was written to the disk was read back unchanged.",
)
DISK_FULL = Message(
    "US3651",
    "{folder} has {free:.2f} GiB free, {wanted:.2f} GiB are required (--min-free)",
    cause="Less space is left on the disk than required.",
    remedy="Free space, or lower --min-free.",
)
DISK_FAILED = Message(
    "US3652",
    "{folder}: {size} MiB could not be written and read back: {reason}",
    cause="The system refused to write to the folder or to read from it.",
    remedy="Check the folder, its permissions and its disk. --folder names another one.",
)
NO_ROOM = Message(
    "US3653",
    "{folder}: {size} MiB could not be written and read back: {reason}; free space there, or raise the user's quota",
    cause="The disk, or the user's quota on it, was exhausted before everything was written.",
    remedy="Free space there, raise the user's quota, or lower --disk-size.",
)
DISK_WRONG = Message(
    "US3654",
    "{folder}: the bytes read differ from the bytes written, at {offset} MiB of the file",
    cause="The data that was read from the disk differs from the data that was written.",
    remedy=_REPLACE,
)
DISK_CACHED = Message(
    "US3655",
    "this file system cannot be read without the cache: the data may have come from the cache",
    cause="The file system does not support O_DIRECT, so the check cannot be sure that it read from the disk.",
)

# gpu
GPUS_COMPUTE = Message(
    "US3670",
    "{models}: all GPUs compute the same results, and return the data that was written to their memory",
    cause="All GPUs of one model computed the same results, and returned the data that was written to their memory.",
)
NO_DEVICE_NAME = Message(
    "US3249",
    "{name} is not the name of a GPU: give gpu1, GPU-UUID or MIG-UUID",
    cause="`understudy check-node --device` takes the index or the UUID of a GPU, as `nvidia-smi -L` lists them.",
    remedy="Give one of these.",
)
NO_GPU = Message(
    "US3671",
    "there is no GPU here",
    cause="This node has no device of NVIDIA's or AMD's driver.",
)
NO_TORCH = Message(
    "US3672",
    "torch, which tests it, is not installed for {python}",
    cause="GPUs are tested by a program that uses torch, and this Python does not have it.",
    remedy="Install torch for this Python, or run the check with one that has it.",
)
PROGRAM_FAILED = Message(
    "US3673",
    "the program that tests the GPUs {how}{last}",
    cause="The program with torch did not end normally. Its last line is quoted.",
    remedy="Run python -m understudy.worker.doctor.devices by hand on this node.",
)
GPUS_UNSEEN = Message(
    "US3674",
    "there are GPUs here, but torch, which is built for {built}, finds none{hidden}",
    cause="The devices exist, but torch does not see them: it is built for another platform, the driver does not match, or a variable "
    "hides them.",
    remedy="Install a torch that is built for these GPUs, and check nvidia-smi and the variables that are named.",
)
GPU_ERROR = Message(
    "US3675",
    "{device}: {error}",
    cause="torch raised an error when this GPU was tested.",
    remedy="Check nvidia-smi and the kernel log (dmesg).",
)
GPU_UNSTEADY = Message(
    "US3676",
    "{device} computes {results} different results in {repeats} runs of the same {kind} product",
    cause="The GPU does not give the same result for the same work.",
    remedy=_REPLACE,
)
GPU_MEMORY_WRONG = Message(
    "US3677",
    "{device}: {words} words of its memory do not hold the data that was written",
    cause="The data that was read from the GPU's memory differs from the data that was written.",
    remedy=_REPLACE,
)
GPUS_DIFFER = Message(
    "US3678",
    "{devices}: the {kind} product differs from that of the {others} other devices of model {model}",
    cause="These GPUs always give the same result, but it differs from that of most GPUs of their model.",
    remedy=_REPLACE,
)
NO_MAJORITY = Message(
    "US3679",
    "{devices}: {results} different {kind} products on devices of model {model}, and no majority for one",
    cause="GPUs of one model give different results, and it is not known which of them are right.",
    remedy="Compare with a GPU of the same model on another node.",
)
