"""What `understudy doctor` finds missing or limited on a machine, and why a torch cannot be used."""

from __future__ import annotations

from understudy.messages.base import Message

_JUDGED = ": hangs are judged with less evidence, and some ranks are replaced, not freed"
_UNUSABLE = "{torch} cannot be used: "
_INSTALL = ". Install torch {first} to {last}; `understudy doctor` shows all"
_ANOTHER = "Install a torch of the range that is named."

TORCH_NOT_TESTED = Message(
    "US9000",
    "{version}, built for {build}: not among those that are tested ({range})",
    cause="This version of torch came out after, or long before, this version of Understudy. Understudy relies on internals of torch, "
    "which may differ.",
    remedy="Install a tested version, or go on if the doctor finds nothing missing.",
)
INTERNAL_MISSING = Message(
    "US9001",
    "{purpose}: {reason}{without}",
    cause="An internal of torch on which Understudy relies is not as it is needed. This torch has changed it.",
    remedy="Install a tested version of torch. Where only one kind of job needs it, other jobs run.",
)
NO_NCCL = Message(
    "US9010",
    "{gpus}; this torch has no {library}",
    cause="There are GPUs, and torch was built without the library for collectives between them, so these are slow or not possible.",
    remedy="Install a torch that is built with it, or use Gloo.",
)
ROCM_UNTESTED = Message(
    "US9014",
    "{build}: nothing has been tried on AMD GPUs",
    cause="torch is built for ROCm. It has the same names as one for CUDA, and RCCL in place of NCCL, so Understudy treats its GPUs as "
    "NVIDIA's. That has not been tested.",
    remedy="Compare a run in which a rank is lost bit by bit with one in which none is, before you rely on it.",
)
GPUS_NOT_SEEN = Message(
    "US9015",
    "there are GPUs of {vendors}, and this torch, built for {build}, sees none",
    cause="The kernel has devices that torch cannot use: it is built for another vendor or for CPUs, or the driver does not fit it.",
    remedy="Install a torch that is built for them. Nothing is to be done if the job is to run on the CPU.",
)
WAITS_NOT_SHOWN = Message(
    "US9011",
    f"torch does not show them on {{architecture}}{_JUDGED}",
    cause="Understudy looks at what threads of Gloo wait for, and knows how to on some architectures only.",
    remedy="Nothing if that is acceptable. Otherwise use x86_64 or aarch64 and a tested torch.",
)
WAITS_NOT_TOLD = Message(
    "US9012",
    f"the kernel does not tell them{_JUDGED}",
    cause="A process may not read its own /proc/self/task/*/syscall or /proc/self/mem here, as a rule because of a seccomp profile or a "
    "hardened kernel.",
    remedy="Let processes read these files of their own.",
)
NO_ROBUST_LOCKS = Message(
    "US9013",
    "robust locks do not work: a worker that ends is noticed when the kernel has given its memory back",
    cause="The C library or the kernel has no robust futexes. Then the end of a large process is noticed later.",
    remedy="Use glibc 2.12 or newer, or musl, on a kernel with robust futexes.",
)
FEW_FILES = Message(
    "US9020",
    "at most {files} in a process",
    cause="The limit of open files is low. Workers with many peers and data loaders may reach it.",
    remedy="Raise it with ulimit -n, or in the limits of the service or container.",
)
FEW_PROCESSES = Message(
    "US9021",
    "at most {processes}, threads included",
    cause="The limit of processes is low, and every thread counts. Workers, data loaders and libraries may reach it.",
    remedy="Raise it with ulimit -u, or in the limits of the service or container.",
)
NO_SHARED_MEMORY = Message(
    "US9022",
    "there is no /dev/shm: loaders with workers of their own fail",
    cause="No tmpfs is mounted at /dev/shm, where torch puts batches of data loader workers.",
    remedy="Mount a tmpfs there.",
)
LITTLE_SHARED_MEMORY = Message(
    "US9023",
    "{megabytes} MiB free in /dev/shm",
    cause="Data loader workers put batches into /dev/shm, and there is little room. Containers have 64 MiB by default.",
    remedy="Give it more, for example with docker run --shm-size=8g.",
)
PROBE_TOO_SLOW = Message(
    "US9030",
    f"{_UNUSABLE}trying its internals out took more than {{seconds:g}} s{_INSTALL}",
    cause="This torch is not tested, so a worker tries out its internals before it starts. That did not end in time.",
    remedy=f"{_ANOTHER} Run `understudy doctor` to see where it stops.",
)
PROBE_ENDED = Message(
    "US9031",
    f"{_UNUSABLE}trying its internals out ended with {{how}}{_INSTALL}",
    cause="This torch is not tested, so a worker tries out its internals before it starts. The process that does so has failed.",
    remedy=_ANOTHER,
)
LACKS_INTERNAL = Message(
    "US9032",
    f"{_UNUSABLE}it has no {{internal}} as it is needed ({{purpose}}): {{reason}}{{more}}{_INSTALL}",
    cause="This torch is not tested, and an internal on which every job relies is not as it is needed.",
    remedy=_ANOTHER,
)
