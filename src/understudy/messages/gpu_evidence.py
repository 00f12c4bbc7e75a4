"""Evidence of the detector of NVIDIA's management library (NVML)."""

from __future__ import annotations

from understudy.messages.base import Message

_RESET = "Let the job leave the node, and reset the GPU (nvidia-smi --gpu-reset) or restart the node."

XID = Message(
    "US3080",
    "Xid {xid}: {meaning} ({gpu})",
    cause="The driver reported an error (Xid) for which NVIDIA's catalogue requires a reset of the GPU, a restart of the node or a repair.",
    remedy="Follow NVIDIA's catalogue of Xids for this number (docs.nvidia.com/deploy/xid-errors).",
)
XID_NO_FAULT = Message(
    "US3081",
    "Xid {xid}: by itself not a fault of the GPU, according to NVIDIA's catalogue ({gpu})",
    cause="The driver reported an error (Xid) that a program can cause, or that follows from another error.",
    remedy="Read the output of the worker on this GPU. If it happens on one GPU only, with different programs, suspect the GPU.",
)

UNCORRECTED_BEFORE = Message(
    "US3085",
    "{count} uncorrected ECC errors from before the first check ({gpu})",
    cause="The GPU counts uncorrected memory errors since the driver was loaded, and had some before the detector started.",
    remedy="Reset the GPU before it is used again, unless it has been reset since.",
)
UNCORRECTED = Message(
    "US3086",
    "{rise} more uncorrected ECC errors, {count} since the driver was loaded ({gpu})",
    cause="The memory of the GPU lost data that it could not correct.",
    remedy=f"{_RESET} If it happens again, have the GPU replaced.",
)
TOO_MANY = Message(
    "US3087",
    "{count} {errors} in {seconds:.0f} s (limit: {limit} in {within:g} s) ({gpu})",
    cause="The GPU corrected or repeated more than the limit allows in this time: corrected memory errors, repeated transfers on PCIe, or "
    "checksum errors on NVLink. A single one is harmless. This many are a sign of a coming failure, and cost time.",
    remedy="Check the seat and the cables of the GPU, and have it examined. The limits can be changed in the detector's section of the "
    "detectors' file ([nvml], [amdsmi]).",
)
ROW_NOT_REMAPPED = Message(
    "US3088",
    "a row of its memory could not be remapped: the GPU has to be replaced ({gpu})",
    cause="The GPU has used up its spare memory rows.",
    remedy="Have the GPU replaced.",
)
ROW_WAITS = Message(
    "US3089",
    "a row of its memory is waiting to be remapped, which requires a reset of the GPU (rows remapped so far: {remapped}) ({gpu})",
    cause="A row of the memory is bad, and the GPU will replace it with a spare row at the next reset.",
    remedy=_RESET,
)
PAGES_WAIT = Message(
    "US3090",
    "memory pages are waiting to be retired, which requires a reset of the GPU ({gpu})",
    cause="Pages of the memory are bad, and will no longer be used after the next reset.",
    remedy=_RESET,
)

HARDWARE_TOO_HOT = Message(
    "US3095",
    "too hot: the hardware has cut the clocks to half or less ({gpu})",
    cause="The GPU protects itself against heat. All ranks of the job wait for this one.",
    remedy="Check the cooling of the node.",
)
POWER_BRAKE = Message(
    "US3096",
    "the power supply has cut the clocks to half or less (power brake) ({gpu})",
    cause="The power supply of the node asked the GPU to use less power, because it is overloaded or a part of it has failed.",
    remedy="Check the power supplies of the node.",
)
TOO_WARM = Message(
    "US3097",
    "too warm: the driver reduces the clocks ({gpu})",
    cause="The driver slows the GPU down because it gets too warm.",
    remedy="Check the cooling of the node.",
)

RECOVERY_ASKED = Message(
    "US3100",
    "the driver asks for {action} ({gpu})",
    cause="The driver reports that the GPU will not work properly again before this is done.",
    remedy="Let the job leave the node, then perform the action.",
)
NVLINK_REPLAYS = Message(
    "US3101",
    "{count} more NVLink replays ({gpu})",
    cause="A transfer on NVLink had to be repeated. This does not happen on healthy links.",
    remedy="Check the NVLink bridges or the switch of this GPU.",
)
NVLINK_RECOVERIES = Message(
    "US3102",
    "{count} more NVLink recoveries ({gpu})",
    cause="An NVLink failed and was restarted by the hardware. This does not happen on healthy links.",
    remedy="Check the NVLink bridges or the switch of this GPU.",
)
NVLINK_CRC = Message(
    "US3103",
    "{count} more NVLink CRC errors ({gpu})",
    cause="Data arrived over an NVLink with a wrong checksum and was sent again. A few of them are harmless.",
)

NVML_ERROR = Message(
    "US3105",
    "NVML: {error} ({gpu})",
    cause="NVIDIA's management library returned an error for a query about this GPU.",
    remedy="Check nvidia-smi and the kernel log. If the GPU is lost, restart the node.",
)
NOT_LISTED = Message(
    "US3106",
    "NVML no longer lists it ({gpu})",
    cause="The GPU was there when the detector started, and the driver no longer has it.",
    remedy="Check the kernel log: the GPU may have fallen off the bus. Restart the node.",
)

NO_PACKAGE = Message(
    "US3110",
    "the package nvidia-ml-py is not installed (pip install 'understudy[nvidia]')",
    cause="The detector of GPUs needs this package to use NVIDIA's management library.",
    remedy="Install it where the node has NVIDIA GPUs. Otherwise ignore this.",
)
NO_DEVICE = Message(
    "US3111",
    "NVML finds no NVIDIA device",
    cause="The driver is installed, and no GPU is visible to this process.",
    remedy="Check nvidia-smi on a node with GPUs, and the devices that are passed to a container.",
)
NO_LIBRARY = Message(
    "US3112",
    "libnvidia-ml.so.1, which is part of NVIDIA's driver, is not found",
    cause="NVIDIA's driver is not installed here, or a container does not have its libraries.",
    remedy="Install the driver on a node with GPUs, or start the container with NVIDIA's container toolkit.",
)
UNUSABLE = Message(
    "US3113",
    "NVML cannot be used: {error}",
    cause="NVIDIA's management library is installed but does not start.",
    remedy="Run nvidia-smi, which uses the same library. Usually driver and library have different versions, or the driver is not loaded.",
)
