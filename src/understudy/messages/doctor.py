"""What `understudy doctor` finds missing or limited on a machine, and why a torch cannot be used."""

from __future__ import annotations

from understudy.messages.base import Message

_JUDGED = (
    ": hangs are detected with less evidence, and some waiting ranks are replaced that could otherwise have been released from their wait"
)
_UNUSABLE = "{torch} cannot be used: "
_INSTALL = ". Install torch {first} to {last}; `understudy doctor` shows all findings"
_ANOTHER = "Install a torch of the named range."

TORCH_NOT_TESTED = Message(
    "US9000",
    "{version}, built for {build}: not among the tested versions ({range})",
    cause="This version of torch was released after, or long before, this version of Understudy. Understudy relies on internals of torch, "
    "which may differ.",
    remedy="Install a tested version, or continue if the doctor finds nothing missing.",
)
INTERNAL_MISSING = Message(
    "US9001",
    "{purpose}: {reason}{without}",
    cause="An internal of torch on which Understudy relies does not have the expected form in this version.",
    remedy="Install a tested version of torch. Jobs that do not need this internal can run.",
)
NO_NCCL = Message(
    "US9010",
    "{gpus}; this torch has no {library}",
    cause="There are GPUs, and torch was built without the library for collectives between them, so collectives are slow or impossible.",
    remedy="Install a torch that is built with the library, or use Gloo.",
)
ROCM_UNTESTED = Message(
    "US9014",
    "{build}: AMD GPUs are untested",
    cause="torch is built for ROCm. It uses the same names as for CUDA, and RCCL instead of NCCL, so Understudy treats its GPUs like "
    "NVIDIA's. This has not been tested.",
    remedy="Compare a run in which a rank is lost with an undisturbed one, bit by bit, before you rely on it.",
)
GPUS_NOT_SEEN = Message(
    "US9015",
    "there are GPUs of {vendors}, and this torch, built for {build}, sees none",
    cause="The kernel has devices that torch cannot use: torch is built for another vendor or for CPUs, or the driver does not match it.",
    remedy="Install a torch that is built for them. Ignore this if the job is to run on the CPU.",
)
WAITS_NOT_SHOWN = Message(
    "US9011",
    f"what threads wait for cannot be read on {{architecture}}{_JUDGED}",
    cause="Understudy reads what threads of Gloo are waiting for, which it supports on some architectures only.",
    remedy="Ignore this if that is acceptable. Otherwise use x86_64 or aarch64 and a tested torch.",
)
WAITS_HIDDEN = Message(
    "US9012",
    f"the kernel does not let a process read what its threads wait for{_JUDGED}",
    cause="A process cannot read its own /proc/self/task/*/syscall or /proc/self/mem here, usually because of a seccomp profile or a "
    "hardened kernel.",
    remedy="Allow processes to read these two files.",
)
NO_ROBUST_LOCKS = Message(
    "US9013",
    "robust locks do not work: the end of a worker is detected only when the kernel has freed its memory",
    cause="The C library or the kernel has no robust futexes. Then the end of a large process is detected later.",
    remedy="Use glibc 2.12 or newer, or musl, on a kernel with robust futexes.",
)
FEW_FILES = Message(
    "US9020",
    "at most {files} in a process",
    cause="The limit of open files is low. Workers with many peers and data loaders may exceed it.",
    remedy="Raise it with ulimit -n, or in the limits of the service or container.",
)
FEW_PROCESSES = Message(
    "US9021",
    "at most {processes}, threads included",
    cause="The limit of processes is low, and every thread counts. Workers, data loaders and libraries may exceed it.",
    remedy="Raise it with ulimit -u, or in the limits of the service or container.",
)
NO_SHARED_MEMORY = Message(
    "US9022",
    "there is no /dev/shm: loaders with worker processes fail",
    cause="No tmpfs is mounted at /dev/shm, where torch puts batches of data loader workers.",
    remedy="Mount a tmpfs there.",
)
LITTLE_SHARED_MEMORY = Message(
    "US9023",
    "{megabytes} MiB free in /dev/shm",
    cause="Data loader workers put batches into /dev/shm, and little space is free. Containers have 64 MiB by default.",
    remedy="Give it more, for example with docker run --shm-size=8g.",
)
PROBE_TOO_SLOW = Message(
    "US9030",
    f"{_UNUSABLE}testing its internals took more than {{seconds:g}} s{_INSTALL}",
    cause="This version of torch is not tested, so a worker tests its internals before it starts. The test did not end in time.",
    remedy=f"{_ANOTHER} Run `understudy doctor` to see where it stops.",
)
PROBE_ENDED = Message(
    "US9031",
    f"{_UNUSABLE}testing its internals ended with {{how}}{_INSTALL}",
    cause="This version of torch is not tested, so a worker tests its internals before it starts. The process that does so failed.",
    remedy=_ANOTHER,
)
LACKS_INTERNAL = Message(
    "US9032",
    f"{_UNUSABLE}{{internal}} does not have the expected form ({{purpose}}): {{reason}}{{more}}{_INSTALL}",
    cause="This version of torch is not tested, and an internal on which every job relies does not have the expected form.",
    remedy=_ANOTHER,
)
