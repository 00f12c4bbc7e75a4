"""What the detector of NVIDIA's management library (NVML) reports."""

from __future__ import annotations

from understudy.messages.base import Message

_RESET = "Let the job leave the node, and reset the GPU (nvidia-smi --gpu-reset) or restart the node."

XID = Message(
    "US3080",
    "Xid {xid}: {meaning} ({gpu})",
    cause="The driver has reported an error (Xid) for which NVIDIA's catalogue asks for a reset of the GPU, a restart of the node or a "
    "repair.",
    remedy="Do what NVIDIA's catalogue of Xids says about this number (docs.nvidia.com/deploy/xid-errors).",
)
XID_NO_FAULT = Message(
    "US3081",
    "Xid {xid}: no fault of the GPU by itself, as NVIDIA's catalogue has it ({gpu})",
    cause="The driver has reported an error (Xid) that a program can cause by itself, or that follows from another error.",
    remedy="Look at the output of the worker on this GPU. If it happens on one GPU only, with different programs, suspect the GPU.",
)

UNCORRECTED_BEFORE = Message(
    "US3085",
    "{count} uncorrected ECC errors from before the first look ({gpu})",
    cause="The GPU counts uncorrected memory errors since the driver was loaded, and had some before the detector began to look.",
    remedy="If the GPU was not reset since, reset it before it is used again.",
)
UNCORRECTED = Message(
    "US3086",
    "{rise} more uncorrected ECC errors, {count} since the driver was loaded ({gpu})",
    cause="The memory of the GPU has lost data that it could not correct.",
    remedy=f"{_RESET} If it happens again, have the GPU replaced.",
)
TOO_MANY = Message(
    "US3087",
    "{count} {errors} in {seconds:.0f} s (limit: {limit} in {within:g} s) ({gpu})",
    cause="The GPU corrected or repeated more than the limit allows in this time: corrected memory errors, repeated transfers on PCIe, or "
    "checksum errors on NVLink. Each by itself is harmless. So many announce a failure, and cost time.",
    remedy="Check the seat and the cables of the GPU, and have it looked at. The limits can be changed in the detector's section of "
    "the detectors' file ([nvml], [amdsmi]).",
)
ROW_NOT_REMAPPED = Message(
    "US3088",
    "a row of its memory could not be remapped: the GPU has to be replaced ({gpu})",
    cause="The GPU has used up its spare memory rows.",
    remedy="Have the GPU replaced.",
)
ROW_WAITS = Message(
    "US3089",
    "a row of its memory waits to be remapped, which a reset of the GPU does ({remapped} are) ({gpu})",
    cause="A row of the memory is bad, and the GPU will replace it with a spare row at the next reset.",
    remedy=_RESET,
)
PAGES_WAIT = Message(
    "US3090",
    "memory pages wait to be retired, which a reset of the GPU does ({gpu})",
    cause="Pages of the memory are bad, and will not be used any more after the next reset.",
    remedy=_RESET,
)

HARDWARE_TOO_HOT = Message(
    "US3095",
    "too hot: the hardware has cut the clocks to half or less ({gpu})",
    cause="The GPU protects itself against heat. All ranks of the job wait for this one.",
    remedy="Look at the cooling of the node.",
)
POWER_BRAKE = Message(
    "US3096",
    "the power supply has cut the clocks to half or less (power brake) ({gpu})",
    cause="The power supply of the node has asked the GPU to take less, because it is overloaded or a part of it has failed.",
    remedy="Look at the power supplies of the node.",
)
TOO_WARM = Message(
    "US3097",
    "too warm: the driver holds the clocks back ({gpu})",
    cause="The driver slows the GPU down because it gets too warm.",
    remedy="Look at the cooling of the node.",
)

RECOVERY_ASKED = Message(
    "US3100",
    "the driver asks for {action} ({gpu})",
    cause="The driver says that the GPU will not work properly again before this was done.",
    remedy="Let the job leave the node, then do what the driver asks for.",
)
NVLINK_REPLAYS = Message(
    "US3101",
    "{count} more NVLink replays ({gpu})",
    cause="A transfer on NVLink had to be repeated. On sound links this does not happen.",
    remedy="Check the NVLink bridges or the switch of this GPU.",
)
NVLINK_RECOVERIES = Message(
    "US3102",
    "{count} more NVLink recoveries ({gpu})",
    cause="An NVLink has failed and was started again by the hardware. On sound links this does not happen.",
    remedy="Check the NVLink bridges or the switch of this GPU.",
)
NVLINK_CRC = Message(
    "US3103",
    "{count} more NVLink CRC errors ({gpu})",
    cause="Data came over an NVLink with a wrong checksum and was sent again. Few of them are harmless.",
)

NVML_ERROR = Message(
    "US3105",
    "NVML: {error} ({gpu})",
    cause="NVIDIA's management library answers a question about this GPU with an error.",
    remedy="Look at nvidia-smi and at the kernel's log. If the GPU is lost, restart the node.",
)
NOT_LISTED = Message(
    "US3106",
    "NVML does not list it any more ({gpu})",
    cause="The GPU was there when the detector began, and the driver does not have it any more.",
    remedy="Look at the kernel's log: the GPU may have fallen off the bus. Restart the node.",
)

NO_PACKAGE = Message(
    "US3110",
    "the package nvidia-ml-py is not installed (pip install 'understudy[nvidia]')",
    cause="The detector of GPUs needs this package to talk to NVIDIA's management library.",
    remedy="Install it where the node has NVIDIA GPUs. Nothing is to be done where it has none.",
)
NO_DEVICE = Message(
    "US3111",
    "NVML finds no NVIDIA device",
    cause="The driver is there, and no GPU is visible to this process.",
    remedy="On a node with GPUs, look at nvidia-smi, and at the devices that a container was given.",
)
NO_LIBRARY = Message(
    "US3112",
    "libnvidia-ml.so.1, which comes with NVIDIA's driver, is not found",
    cause="NVIDIA's driver is not installed here, or a container does not have its libraries.",
    remedy="On a node with GPUs, install the driver, or start the container with NVIDIA's container toolkit.",
)
UNUSABLE = Message(
    "US3113",
    "NVML cannot be used: {error}",
    cause="NVIDIA's management library is there and refuses to start.",
    remedy="Look at nvidia-smi, which uses the same library. As a rule driver and library are of different versions, or the driver is not "
    "loaded.",
)
