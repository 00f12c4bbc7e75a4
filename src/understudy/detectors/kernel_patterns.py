"""The meaning of the texts of the kernel's log: one row for each kind of text, with the source that prints it.

A text is matched from its beginning, because a user may choose a part of it (the name of a process, of a file), and the first row
that matches counts. Three rules decide the meaning of a text:

- A device that must be reset according to its vendor, or that has lost data, is suspect until a person clears it.
- A fault that was survived (a controller that was reset, a memory page that was retired) makes suspect for a while: it may happen again.
- Corrected errors, and errors that an application can cause by itself, are notes.

A link that goes down is a state that another text ends (`clears`). It has to last (`settles`), because a driver that is configured
takes its link down briefly, and collectives survive that.

Known limits: texts change with the kernel and with the driver; a changed text is not recognized. Neither is a link
that was down before the log begins, one of InfiniBand (the kernel's log has nothing of its ports), nor what only a host of virtual machines
sees. An interface that is renamed while it is down is not seen to come up, and one that a person takes down looks broken. Texts of
bonding about links are left out: a user with a network namespace in a container can produce them for a name like the host's.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from understudy.detectors.base import Severity, Subject

NOTE, SUSPECT = Severity.NOTE, Severity.SUSPECT
DEVICE, LINK, NODE = Subject.DEVICE, Subject.LINK, Subject.NODE
MINUTE, HOUR, DAY, FOREVER = 60.0, 3600.0, 86400.0, 0.0

_PCI = r"(?P<pci>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
_PCI_DRIVER = rf"[\w-]{{1,32}} {_PCI}: "
_XID = r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})(?: GPU-I:\d+)?(?: GPU-CI:\d+)?\): "
# Newer kernels put the number of the event in braces.
_AMDGPU = rf"amdgpu {_PCI}: (?:amdgpu: )?(?:\{{\d+\}} ?)?"
_AMDGPU_COUNT = rf"{_AMDGPU}(?:socket: \d+, die: \d+,? )?[1-9]\d* (?:new )?"
_PROCESS = r"(?:pid=[^,]*, name=[^,]*, )?"
_DISK = r"(?P<disk>[\w!.-]{1,32})"
_ACTION = r"0x[0-9a-f]+ \([\w ]+\)"
_OFF_THE_BUS = r"[0-9a-f]{4}:[0-9a-f]{4}\) installed in this system has\s+NVRM: fallen off the bus and is not responding to commands\."
_THROTTLED = r"(?:mce: )?CPU(?P<cpu>\d+): (?:Core|Package) temperature (?:is )?above threshold, cpu clock (?:is )?throttled \(total events"
_MEMORY = r"(?:.{0,200} )?on .{1,300} \("  # without it a process could be named like the text
_NVME = r"nvme (?P<nvme>nvme\d+): "
_INTERFACE = r"(?P<interface>[^\s:/]{1,15})"
_ADAPTER = rf"[\w-]{{1,32}} {_PCI} {_INTERFACE}: (?:igb: \S+ )?(?:NIC )?"
_MLX5 = rf"mlx5_core {_PCI}: (?:\w+:\d+:(?:\(pid \d+\): )?)?"
_HARDWARE = r"(?:mce: |\{\d+\})?\[Hardware Error\]: "
_BUS_ERROR = rf"{_PCI_DRIVER}(?:AER: )?PCIe Bus Error: severity="

# NVIDIA's catalogue gives an immediate action for each Xid. These have "reset the GPU", "restart the machine" or a workflow that ends so;
# those from 162 on have none yet, and are listed because of their names.
XIDS_BROKEN = frozenset({46, 48, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158, 167, 168, 169, 171, 172, 173})
# For these the catalogue lets an application go on or restart (a row was remapped, an error contained, many corrected), but the
# memory of the GPU has begun to fail: it should be reset soon.
XIDS_FAILING = frozenset({63, 92, 94, 157})
# NVLink of Blackwell and later: the text shows whether the error is fatal.
XIDS_NVLINK5 = frozenset(range(144, 151))

_NVIDIA = "open-gpu-kernel-modules: src/nvidia"
_XID_CATALOGUE = f"docs.nvidia.com/deploy/xid-errors; {_NVIDIA}/src/kernel/gpu/rc/kernel_rc.c"


@dataclass(frozen=True)
class Pattern:
    kind: str  # as of evidence; names in braces are groups of the text
    severity: Severity
    subject: Subject
    part: str  # likewise
    hold: float  # seconds for which it is valid; 0: it does not wear off
    text: re.Pattern[str]
    source: str  # the source that prints or explains it
    settles: float = 0.0  # seconds that a state has to last; 0: it is an event
    clears: bool = False  # it ends the state of this kind and part


@dataclass(frozen=True)
class Meaning:
    pattern: Pattern
    kind: str
    part: str


def meaning(text: str) -> Meaning | None:
    for pattern in PATTERNS:
        if (found := pattern.text.match(text)) is not None:
            groups = found.groupdict()
            return Meaning(pattern, pattern.kind.format_map(groups), pattern.part.format_map(groups))
    return None


def _xids(numbers: Collection[int]) -> str:
    return rf"{_XID}(?P<xid>{'|'.join(str(number) for number in sorted(numbers))}),"


def _printed_by(source: str, subject: Subject, part: str, *rows: tuple[str, Severity, float, str]) -> tuple[Pattern, ...]:
    """Return rows that share a source. `rows`: kind, severity, hold and text."""
    return tuple(Pattern(kind, severity, subject, part, hold, re.compile(text), source) for kind, severity, hold, text in rows)


def _link(source: str, down: str, up: str) -> tuple[Pattern, ...]:
    state = Pattern("link-down", SUSPECT, LINK, "{interface}", 2 * MINUTE, re.compile(down), source, settles=5.0)
    return state, replace(state, text=re.compile(up), settles=0.0, clears=True)


_ACCELERATORS = (
    *_printed_by(
        _XID_CATALOGUE,
        DEVICE,
        "pci:{pci}.0",
        ("xid-{xid}", SUSPECT, FOREVER, _xids(XIDS_BROKEN)),
        ("xid-{xid}", SUSPECT, DAY, _xids(XIDS_FAILING)),
        ("xid-{xid}", SUSPECT, FOREVER, rf"{_xids(XIDS_NVLINK5)} {_PROCESS}[A-Z_/]+ Fatal XC[01] i\d+ Link -?\d+ "),
        ("xid-{xid}", SUSPECT, FOREVER, rf"{_xids({154})} {_PROCESS}GPU recovery action changed from {_ACTION} to (?!0x0 ){_ACTION}"),
        # All others: an application's fault (13, 31, 43), a consequence of another Xid (45), or unknown.
        ("xid-{xid}", NOTE, DAY, rf"{_XID}(?P<xid>\d{{1,5}}),"),
    ),
    *_printed_by(
        f"{_NVIDIA}/arch/nvalloc/unix/src/osinit.c, osapi.c",
        DEVICE,
        "pci:{pci}",
        ("gpu-off-the-bus", SUSPECT, FOREVER, rf"NVRM: GPU {_PCI}: GPU has fallen off the bus\."),
        ("gpu-off-the-bus", SUSPECT, FOREVER, rf"NVRM: The NVIDIA GPU {_PCI}\s+NVRM: \(PCI ID: {_OFF_THE_BUS}"),
    ),
    *_printed_by(
        "open-gpu-kernel-modules: src/common/nvswitch/kernel/inc/common_nvswitch.h, intr_nvswitch.h",
        DEVICE,
        "pci:{pci}",
        ("sxid-{sxid}", SUSPECT, FOREVER, rf"nvidia-nvswitch\d+: SXid \(PCI:{_PCI}\): (?P<sxid>\d{{5}}), Fatal, "),
        ("sxid-{sxid}", NOTE, DAY, rf"nvidia-nvswitch\d+: SXid \(PCI:{_PCI}\): (?P<sxid>\d{{5}}), Non-fatal, "),
    ),
)

# Known limits: none of these texts was printed on a GPU of ours; they come from the named sources and from people's reports. Older kernels
# do not name the GPU whose ring has timed out, and such texts are not here. The total of errors ("detected in total") is
# printed whenever a tool asks for it, also long after, so only texts about new errors count.
_AMD = (
    *_printed_by(
        "linux: drivers/gpu/drm/amd/amdgpu/amdgpu_device.c, amdgpu_drv.c, amdgpu_job.c",
        DEVICE,
        "pci:{pci}",
        ("gpu-off-the-bus", SUSPECT, FOREVER, rf"{_AMDGPU}device lost from bus!"),
        ("gpu-init-failed", SUSPECT, FOREVER, rf"{_AMDGPU}Fatal error during GPU init"),
        ("gpu-reset-failed", SUSPECT, FOREVER, rf"{_AMDGPU}GPU reset(?:\(\d+\) failed| end with ret = -\d+)"),
        # An application can make a ring time out. As a last resort the driver resets the GPU, with the work of all its processes.
        ("gpu-reset", SUSPECT, HOUR, rf"{_AMDGPU}GPU reset begin!"),
        ("gpu-ring-timeout", NOTE, HOUR, rf"{_AMDGPU}ring [\w.]+ timeout, "),
    ),
    *_printed_by(
        "linux: drivers/gpu/drm/amd/amdgpu/amdgpu_ras.c, amdgpu_ras_eeprom.c, ../amdkfd/kfd_int_process_v9.c",
        DEVICE,
        "pci:{pci}",
        ("gpu-fatal-error", SUSPECT, FOREVER, rf"{_AMDGPU}[Uu]ncorrectable hardware error\(ERREVENT_ATHUB_INTERRUPT\) detected!"),
        ("gpu-ecc-uncorrected", SUSPECT, FOREVER, rf"{_AMDGPU_COUNT}uncorrectable hardware errors detected in \w+ block"),
        # Bad data that was found before it was used; the page is retired.
        ("gpu-ecc-deferred", SUSPECT, DAY, rf"{_AMDGPU_COUNT}deferred hardware errors detected in \w+ block"),
        ("gpu-ecc-corrected", NOTE, DAY, rf"{_AMDGPU_COUNT}correctable hardware errors detected in \w+ block"),
        # Bad data that a program has used; the program is ended because of it.
        ("gpu-poison", SUSPECT, DAY, rf"{_AMDGPU}poison is consumed by "),
        ("gpu-pages-used-up", SUSPECT, FOREVER, rf"{_AMDGPU}RAS records:\d+ exceed threshold:\d+"),
    ),
    *_printed_by(
        "linux: drivers/gpu/drm/amd/pm",
        DEVICE,
        "pci:{pci}",
        ("gpu-too-hot", SUSPECT, DAY, rf"{_AMDGPU}ERROR: GPU (?:over temperature range|HW Critical Temperature Fault)\("),
    ),
    *_printed_by(
        "linux: drivers/gpu/drm/amd/amdgpu/gmc_v*.c",
        DEVICE,
        "pci:{pci}",
        ("gpu-page-fault", NOTE, HOUR, rf"{_AMDGPU}\[\w+\] (?:no-retry |retry )?page fault \(src_id:\d+ "),
        ("gpu-page-fault", NOTE, HOUR, rf"{_AMDGPU}GPU fault detected: \d+ 0x[0-9a-f]+"),
    ),
)

_PROCESSOR_AND_MEMORY = (
    *_printed_by(
        "linux: arch/x86/kernel/cpu/mce/core.c",
        DEVICE,
        "cpu{cpu}",
        ("machine-check", SUSPECT, FOREVER, rf"{_HARDWARE}CPU (?P<cpu>\d+): Machine Check Exception: [0-9a-f]+ Bank \d+: [0-9a-f]{{16}}"),
        # Bit 61 of a bank's status means that the error was not corrected.
        ("machine-check", SUSPECT, FOREVER, rf"{_HARDWARE}CPU (?P<cpu>\d+): Machine Check: [0-9a-f]+ Bank \d+: [2367abef][0-9a-f]{{15}}"),
        ("machine-check-corrected", NOTE, DAY, rf"{_HARDWARE}CPU (?P<cpu>\d+): Machine Check: [0-9a-f]+ Bank \d+: [0-9a-f]{{16}}"),
    ),
    *_printed_by(
        "linux: arch/x86/kernel/cpu/mce/core.c, mm/memory-failure.c",
        DEVICE,
        "memory",
        ("memory-uncorrected", SUSPECT, DAY, r"mce: Uncorrected hardware memory error in user-access at [0-9a-f]+"),
        ("memory-failure", SUSPECT, DAY, r"(?:Memory failure: |MCE )0x[0-9a-f]+: recovery action for [\w -]+: [A-Z]"),
    ),
    *_printed_by(
        "linux: drivers/edac/edac_mc.c",
        DEVICE,
        "mc{mc}",
        ("ecc-uncorrected", SUSPECT, FOREVER, rf"EDAC MC(?P<mc>\d+): \d+ UE {_MEMORY}"),
        ("ecc-corrected", NOTE, DAY, rf"EDAC MC(?P<mc>\d+): \d+ CE {_MEMORY}"),
    ),
    # The firmware's report may be about anything: memory, a processor, a PCIe device that has recovered.
    *_printed_by(
        "linux: arch/x86/kernel/cpu/mce/core.c, drivers/firmware/efi/cper.c",
        NODE,
        "",
        ("machine-check-logged", NOTE, DAY, rf"{_HARDWARE}Machine check events logged"),
        ("firmware-error", SUSPECT, HOUR, rf"{_HARDWARE}event severity: (?:recoverable|fatal)"),
        ("firmware-error-corrected", NOTE, DAY, rf"{_HARDWARE}event severity: corrected"),
    ),
    *_printed_by("linux: drivers/thermal/intel/therm_throt.c", DEVICE, "cpu{cpu}", ("cpu-throttled", NOTE, HOUR, _THROTTLED)),
)

_DISKS = (
    *_printed_by(
        "linux: drivers/nvme/host/pci.c, core.c",
        DEVICE,
        "{nvme}",
        ("nvme-dead", SUSPECT, FOREVER, rf"{_NVME}Removing after probe failure status: -?\d"),
        ("nvme-dead", SUSPECT, FOREVER, rf"{_NVME}Disabling device after reset failure: -?\d"),
        ("nvme-reset", SUSPECT, HOUR, rf"{_NVME}controller is down; will reset: "),
        ("nvme-reset", SUSPECT, HOUR, rf"{_NVME}Device not ready; aborting reset, CSTS=0x"),
        ("nvme-reset", SUSPECT, HOUR, rf"{_NVME}I/O (?:tag )?\d+ .{{0,80}}timeout, reset controller"),
        ("nvme-timeout", NOTE, HOUR, rf"{_NVME}I/O (?:tag )?\d+ .{{0,80}}timeout, (?:aborting|completion polled)"),
    ),
    # An error of one request may come from a disk that was removed, or from one in a network, so it does wear off.
    *_printed_by(
        "linux: block/blk-core.c, blk-mq.c, fs/buffer.c, drivers/nvme/host/multipath.c",
        DEVICE,
        "{disk}",
        ("medium-error", SUSPECT, DAY, rf"(?:\w+: )?critical medium error, dev {_DISK}, sector \d+"),
        ("io-error", SUSPECT, HOUR, rf"(?:\w+: )?I/O error, dev {_DISK}, sector \d+"),
        ("io-error", SUSPECT, HOUR, rf"Buffer I/O error on dev {_DISK}, logical block \d+"),
        ("io-error", SUSPECT, HOUR, rf"block {_DISK}: no available path - failing I/O"),
    ),
    *_printed_by(
        "linux: fs/ext4/super.c, fs/xfs/xfs_fsops.c",
        DEVICE,
        "{disk}",
        ("filesystem-error", SUSPECT, DAY, rf"EXT4-fs error \(device {_DISK}\): "),
        ("filesystem-read-only", SUSPECT, FOREVER, rf"EXT4-fs \({_DISK}\): Remounting filesystem read-only"),
        ("filesystem-down", SUSPECT, FOREVER, rf"XFS \({_DISK}\): Filesystem has been shut down due to "),
        ("filesystem-down", SUSPECT, FOREVER, rf"XFS \({_DISK}\): .{{0,160}}\.  Shutting down filesystem"),
    ),
)

_BUS_AND_NETWORK = (
    # PCI Express calls an error non-fatal if the link goes on working; an unsupported request to a healthy device is one.
    *_printed_by(
        "linux: drivers/pci/pcie/aer.c",
        DEVICE,
        "pci:{pci}",
        ("pcie-fatal", SUSPECT, FOREVER, rf"{_BUS_ERROR}Uncorrect(?:ed|able) \(Fatal\), "),
        ("pcie-uncorrected", NOTE, DAY, rf"{_BUS_ERROR}Uncorrect(?:ed|able) \(Non-Fatal\), "),
        ("pcie-corrected", NOTE, DAY, rf"{_BUS_ERROR}Correct(?:ed|able), "),
    ),
    *_printed_by(
        "linux: drivers/net/ethernet/mellanox/mlx5/core/health.c, events.c",
        LINK,
        "pci:{pci}",
        # Sensor 3 means that the adapter is disabled: a virtual function that is removed reports it, too.
        ("mlx5-disabled", NOTE, HOUR, rf"{_MLX5}Fatal error 3 detected"),
        ("mlx5-fatal", SUSPECT, HOUR, rf"{_MLX5}Fatal error \d+ detected"),
        ("mlx5-fatal", SUSPECT, HOUR, rf"{_MLX5}device's health compromised - reached miss count"),
        ("mlx5-health", NOTE, DAY, rf"{_MLX5}Health issue observed, "),
        ("mlx5-module", SUSPECT, HOUR, rf"{_MLX5}Port module event\[error\]: module \d+, "),
    ),
    *_link(
        "linux: drivers/net/ethernet (mellanox, intel, broadcom, realtek), drivers/net/phy/phy.c",
        rf"{_ADAPTER}[Ll]ink (?:is )?[Dd]own\s*$",
        rf"{_ADAPTER}[Ll]ink (?:is )?[Uu]p(?: |\s*$)",
    ),
)

_PROCESSES = _printed_by(
    "linux: mm/oom_kill.c, kernel/hung_task.c, kernel/watchdog.c",
    NODE,
    "",
    ("out-of-memory", NOTE, HOUR, r"(?:Out of memory|Memory cgroup out of memory): Killed process \d+ \("),
    ("hung-task", NOTE, HOUR, r"INFO: task .{1,64}:\d+ blocked for more than \d+ seconds"),
    ("soft-lockup", NOTE, HOUR, r"(?:watchdog: )?BUG: soft lockup - CPU#\d+ stuck for \d+s! \["),
)

PATTERNS: tuple[Pattern, ...] = _ACCELERATORS + _AMD + _PROCESSOR_AND_MEMORY + _DISKS + _BUS_AND_NETWORK + _PROCESSES
