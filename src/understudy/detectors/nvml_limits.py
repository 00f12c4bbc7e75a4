"""The limits of the NVML detector, and the source of each figure. Most are limits of NVIDIA's own health checks (DCGM).

Known limits: NVIDIA publishes no rate of corrected ECC errors that is too high, so that figure is ours. The catalogue of Xids
grows with the driver: one that is not named here is a note.
"""

from __future__ import annotations

from dataclasses import dataclass

from understudy.detectors.device_watch import Rate
from understudy.messages import gpu_evidence


@dataclass(frozen=True)
class Limits:
    # DCGM's header of hardware limits has 10 and calls it a placeholder; the period of a minute is ours.
    corrected_ecc: Rate = Rate(10, 60.0)
    # DCGM's health check of PCIe: 8 replays a minute are the most that NVIDIA's driver developers recommend.
    pcie_replays: Rate = Rate(8, 60.0)
    # DCGM's health check of NVLink: 100 CRC errors a second, over a minute, fail. Fewer are a warning there and a note here. A single
    # replay or recovery fails there, so these two have no limit.
    nvlink_crc: Rate = Rate(6000, 60.0)
    # Seconds for which the clocks have to be throttled. Ours: a short slowdown costs nothing, and NVML shows the present state only.
    slowdown: float = 5.0
    # Seconds for which evidence of passing conditions is valid. Ours.
    wears_off: float = 600.0
    # Milliseconds to wait for an Xid of each device, and the most that are read of it in one look. Ours: 16 devices wait 0.16 s.
    event_wait: int = 10
    events: int = 64


DEFAULT = Limits()

# The Xids of NVIDIA's catalogue whose immediate action is a reset of the GPU, a restart of the machine, a look at its cables, or a
# workflow for memory or NVLink (docs.nvidia.com/deploy/xid-errors, table "Xids"). For all others it is to restart the program, or none.
XIDS = {
    46: "the GPU has stopped processing",
    48: "uncorrectable ECC error",
    54: "the auxiliary power of the board is not connected",
    62: "a microcontroller of the GPU has halted",
    64: "a row could not be remapped, or a page not retired",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    95: "uncontained memory error",
    109: "a context switch timed out",
    110: "security fault",
    119: "the GPU's system processor does not answer",
    120: "error of the GPU's system processor",
    136: "training of an NVLink failed",
    140: "uncorrected ECC error",
    143: "the GPU could not be initialised",
    **dict.fromkeys(range(144, 151), "NVLink error"),
    155: "NVLink error",
    156: "a resource of the GPU was retired",
    158: "fatal timeout of the GPU",
}

# NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, nvmlDeviceGpuRecoveryAction_t; 0 is none.
RECOVERY_ACTIONS = {
    1: "a reset of the GPU",
    2: "a reboot of the node",
    3: "an end of peer-to-peer traffic",
    4: "an end of its work, then a reset of the GPU",
    5: "a recovery of the IMEX domain",
    6: "a reset of the bus",
    7: "a reboot of the system",
}

# nvmlClocksEventReasons: bit, kind, its description, and whether it halves the clocks or more, which makes all ranks wait.
SLOWDOWNS = (
    (0x40, "slowdown-hw-thermal", gpu_evidence.HARDWARE_TOO_HOT, True),
    (0x80, "slowdown-power-brake", gpu_evidence.POWER_BRAKE, True),
    (0x20, "slowdown-sw-thermal", gpu_evidence.TOO_WARM, False),
)
