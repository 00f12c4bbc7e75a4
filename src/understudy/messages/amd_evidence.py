"""Evidence of the detector of AMD's management library (AMD SMI)."""

from __future__ import annotations

from understudy.messages.base import Message

_RESET = "Let the job leave the node, and reset the GPU (amd-smi reset --gpureset) or restart the node."

AMD_UNCORRECTED_BEFORE = Message(
    "US3115",
    "{count} uncorrected ECC errors from before the first check ({gpu})",
    cause="The GPU counts uncorrected memory errors since the driver was loaded, and had some before the detector started.",
    remedy="Reset the GPU before it is used again, unless it has been reset since.",
)
AMD_UNCORRECTED = Message(
    "US3116",
    "{rise} more uncorrected ECC errors, {count} since the driver was loaded ({gpu})",
    cause="The GPU lost data that it could not correct.",
    remedy=f"{_RESET} If it happens again, have the GPU replaced.",
)
AMD_DEFERRED = Message(
    "US3117",
    "{rise} more deferred ECC errors, {count} since the driver was loaded ({gpu})",
    cause="The GPU found bad data in its memory before a program used it, and retires the page.",
    remedy=f"{_RESET} If it happens again, have the GPU replaced.",
)
AMD_PAGES_PENDING = Message(
    "US3118",
    "{count} bad memory pages are still in use, until the GPU is reset ({gpu})",
    cause="Pages of the memory are bad, and the driver can retire them only at the next reset.",
    remedy=_RESET,
)
AMD_PAGES_KEPT = Message(
    "US3119",
    "{count} bad memory pages cannot be retired ({gpu})",
    cause="Pages of the memory are bad, and the driver could not reserve them.",
    remedy=f"{_RESET} If they are still there, have the GPU replaced.",
)

AMD_TOO_HOT = Message(
    "US3121",
    "{sensor}: {temperature} degrees, critical from {critical} on ({gpu})",
    cause="The GPU has reached the temperature that its driver defines as critical. It slows down, and switches itself off if it gets "
    "hotter.",
    remedy="Check the cooling of the node.",
)
AMD_THROTTLED = Message(
    "US3122",
    "slowed down for {share:.0%} of the time by {reason} ({gpu})",
    cause="The firmware of the GPU reduces its clocks. All ranks of the job wait for this one.",
    remedy="Check the cooling and the power supplies of the node.",
)

AMD_XGMI_BEFORE = Message(
    "US3124",
    "XGMI reports an error from before the first check ({gpu})",
    cause="A link between GPUs had an error, and the report of it has not been reset since.",
    remedy="Reset the report (see `amd-smi reset --help`), so that a new error shows.",
)
AMD_XGMI = Message(
    "US3125",
    "XGMI reports an error ({gpu})",
    cause="A link between this GPU and another one had an error.",
    remedy="Check the kernel log and the links of this GPU.",
)

AMD_ERROR = Message(
    "US3127",
    "AMD SMI: {query}: {error} ({gpu})",
    cause="AMD's management library returned an error for a query about this GPU. Without the required permissions, this is usual.",
    remedy="Run the same query with amd-smi, and check the kernel log.",
)
AMD_GONE = Message(
    "US3128",
    "it no longer responds on the PCI bus ({gpu})",
    cause="The GPU was there when the detector started. Now the bus does not list it, or returns only ones for it.",
    remedy="Check the kernel log. Restart the node; if it happens again, check the seat of the GPU, or have it replaced.",
)

AMD_NO_DRIVER = Message(
    "US3130",
    "the driver amdgpu is not loaded",
    cause="Only this driver serves AMD's GPUs, and the node has none, or its driver is not installed.",
    remedy="Install the driver on a node with AMD GPUs. Otherwise ignore this.",
)
AMD_NO_PACKAGE = Message(
    "US3131",
    "the package amdsmi is not installed (pip install /opt/rocm/share/amd_smi)",
    cause="The detector of AMD GPUs needs this package to use AMD's management library.",
    remedy="Install the package of the node's ROCm: the package and the library must have the same version.",
)
AMD_NO_LIBRARY = Message(
    "US3132",
    "the package amdsmi cannot be used: {error}",
    cause="The package does not find AMD's management library (libamd_smi.so), or finds one of another version.",
    remedy="Install amd-smi-lib, set ROCM_PATH, and install the package that belongs to it (pip install /opt/rocm/share/amd_smi).",
)
AMD_UNUSABLE = Message(
    "US3133",
    "AMD SMI cannot be used: {error}",
    cause="AMD's management library is installed but does not start.",
    remedy="Run amd-smi, which uses the same library, as the same user.",
)
AMD_NO_DEVICE = Message(
    "US3134",
    "AMD SMI finds no device",
    cause="The driver is loaded, and no GPU is visible to this process.",
    remedy="Check amd-smi list, and the devices that are passed to a container (/dev/kfd, /dev/dri).",
)
