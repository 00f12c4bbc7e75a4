"""Texts of the kernel's log: real ones with their meaning, and others that look alike."""

from __future__ import annotations

from understudy.detectors.base import Severity, Subject

N, S = Severity.NOTE, Severity.SUSPECT
D, L, H = Subject.DEVICE, Subject.LINK, Subject.NODE

# Texts as drivers' sources and people's reports have them: kind, severity, subject, part.
REAL = {
    "NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=nvidia-smi, Timeout after 6s of waiting for RPC response from GPU4 GSP!": (
        ("xid-119", S, D, "pci:0000:9b:00.0")
    ),
    "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.": ("xid-79", S, D, "pci:0000:01:00.0"),
    "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, reset gpu to activate.": (
        ("xid-63", S, D, "pci:0000:10:1c.0")
    ),
    "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No": (
        ("xid-94", S, D, "pci:0000:01:00.0")
    ),
    "NVRM: Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:01): 95, pid=7062, Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No": (
        ("xid-95", S, D, "pci:0000:01:00.0")
    ),
    "NVRM: Xid (0000:01:00): 31, Ch 0000000b, engmask 00000120, intr 10000000": ("xid-31", N, D, "pci:0000:01:00.0"),
    "NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149": (
        "xid-45",
        N,
        D,
        "pci:0000:dc:00.0",
    ),
    "NVRM: Xid (PCI:0018:01:00): 149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000)": ("xid-149", S, D, "pci:0018:01:00.0"),
    "NVRM: Xid (PCI:0018:01:00): 145, pid=876767, name=ray::WorkerDict, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)": (
        ("xid-145", N, D, "pci:0018:01:00.0")
    ),
    "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)": (
        ("xid-154", S, D, "pci:0000:3b:00.0")
    ),
    "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)": (
        ("xid-154", N, D, "pci:0000:3b:00.0")
    ),
    "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.": ("gpu-off-the-bus", S, D, "pci:0000:3b:00.0"),
    "NVRM: The NVIDIA GPU 0000:3b:00.0\nNVRM: (PCI ID: 10de:2330) installed in this system has\n"
    "NVRM: fallen off the bus and is not responding to commands.": ("gpu-off-the-bus", S, D, "pci:0000:3b:00.0"),
    "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 62 LTSSM Fault Up": ("sxid-20034", S, D, "pci:0000:05:00.0"),
    "nvidia-nvswitch1: SXid (PCI:0000:02:00.0): 22013, Non-fatal, Link 00 Minion Link DLREQ interrupt": (
        ("sxid-22013", N, D, "pci:0000:02:00.0")
    ),
    "amdgpu 0000:0b:00.0: device lost from bus!": ("gpu-off-the-bus", S, D, "pci:0000:0b:00.0"),
    "amdgpu 0000:05:00.0: amdgpu: Fatal error during GPU init": ("gpu-init-failed", S, D, "pci:0000:05:00.0"),
    "amdgpu 0000:e3:00.0: amdgpu: GPU reset(1) failed": ("gpu-reset-failed", S, D, "pci:0000:e3:00.0"),
    "amdgpu 0000:e3:00.0: amdgpu: GPU reset end with ret = -62": ("gpu-reset-failed", S, D, "pci:0000:e3:00.0"),
    "amdgpu 0000:0c:00.0: amdgpu: GPU reset begin!": ("gpu-reset", S, D, "pci:0000:0c:00.0"),
    "amdgpu 0000:28:00.0: GPU reset begin!. Source:  1": ("gpu-reset", S, D, "pci:0000:28:00.0"),
    "amdgpu 0000:c5:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=2662395, emitted seq=2662397": (
        ("gpu-ring-timeout", N, D, "pci:0000:c5:00.0")
    ),
    "amdgpu 0000:07:00.0: amdgpu: ring gfx timeout, but soft recovered": ("gpu-ring-timeout", N, D, "pci:0000:07:00.0"),
    "amdgpu 0000:e3:00.0: amdgpu: uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!": (
        ("gpu-fatal-error", S, D, "pci:0000:e3:00.0")
    ),
    "amdgpu 0000:1c:00.0: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!": (
        ("gpu-fatal-error", S, D, "pci:0000:1c:00.0")
    ),
    "amdgpu 0000:0b:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block": (
        ("gpu-ecc-uncorrected", S, D, "pci:0000:0b:00.0")
    ),
    "amdgpu 0000:c1:00.0: amdgpu: {17}socket: 4, die: 0, 1 new uncorrectable hardware errors detected in gfx block": (
        ("gpu-ecc-uncorrected", S, D, "pci:0000:c1:00.0")
    ),
    "amdgpu 0000:c1:00.0: {3}socket: 0, die: 2, 1 new deferred hardware errors detected in umc block": (
        ("gpu-ecc-deferred", S, D, "pci:0000:c1:00.0")
    ),
    "amdgpu 0000:c1:00.0: amdgpu: socket: 4, die: 0 1 correctable hardware errors detected in gfx block, no user action is needed.": (
        ("gpu-ecc-corrected", N, D, "pci:0000:c1:00.0")
    ),
    "amdgpu 0000:42:00.0: amdgpu: poison is consumed by client 12, kick off gpu reset flow": (("gpu-poison", S, D, "pci:0000:42:00.0")),
    "amdgpu 0000:42:00.0: amdgpu: RAS records:266 exceed threshold:256": ("gpu-pages-used-up", S, D, "pci:0000:42:00.0"),
    "amdgpu 0000:0f:00.0: amdgpu: ERROR: GPU over temperature range(SW CTF) detected!": ("gpu-too-hot", S, D, "pci:0000:0f:00.0"),
    "amdgpu 0000:0f:00.0: amdgpu: ERROR: GPU HW Critical Temperature Fault(aka CTF) detected!": (("gpu-too-hot", S, D, "pci:0000:0f:00.0")),
    "amdgpu 0002:00:00.0: amdgpu: [gfxhub] page fault (src_id:0 ring:40 vmid:7 pasid:32819)": (
        ("gpu-page-fault", N, D, "pci:0002:00:00.0")
    ),
    "amdgpu 0000:04:00.0: amdgpu: [gfxhub0] retry page fault (src_id:0 ring:0 vmid:3 pasid:32769, for process python pid 778 thread": (
        ("gpu-page-fault", N, D, "pci:0000:04:00.0")
    ),
    "amdgpu 0000:01:00.0: GPU fault detected: 147 0x09388402": ("gpu-page-fault", N, D, "pci:0000:01:00.0"),
    "mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 4: b200000000070f0f": ("machine-check", S, D, "cpu3"),
    "mce: [Hardware Error]: CPU 11: Machine Check: 0 Bank 5: bea0000000000108": ("machine-check", S, D, "cpu11"),
    "[Hardware Error]: CPU 0: Machine Check: 0 Bank 7: 8c00004000010091": ("machine-check-corrected", N, D, "cpu0"),
    "mce: [Hardware Error]: Machine check events logged": ("machine-check-logged", N, H, ""),
    "mce: Uncorrected hardware memory error in user-access at af34214200": ("memory-uncorrected", S, D, "memory"),
    "Memory failure: 0x7740c0: recovery action for dirty page: Recovered": ("memory-failure", S, D, "memory"),
    "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x1b offset:0x0 grain:32)": (
        ("ecc-uncorrected", S, D, "mc0")
    ),
    "EDAC MC1: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0x1b)": ("ecc-corrected", N, D, "mc1"),
    "{1}[Hardware Error]: event severity: recoverable": ("firmware-error", S, H, ""),
    "{12}[Hardware Error]: event severity: corrected": ("firmware-error-corrected", N, H, ""),
    "mce: CPU0: Package temperature above threshold, cpu clock throttled (total events = 4)": ("cpu-throttled", N, D, "cpu0"),
    "CPU7: Core temperature is above threshold, cpu clock is throttled (total events = 219)": ("cpu-throttled", N, D, "cpu7"),
    "nvme nvme0: Removing after probe failure status: -19": ("nvme-dead", S, D, "nvme0"),
    "nvme nvme4: Disabling device after reset failure: -19": ("nvme-dead", S, D, "nvme4"),
    "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10": ("nvme-reset", S, D, "nvme0"),
    "nvme nvme0: Device not ready; aborting reset, CSTS=0x1": ("nvme-reset", S, D, "nvme0"),
    "nvme nvme0: I/O 528 QID 10 timeout, reset controller": ("nvme-reset", S, D, "nvme0"),
    "nvme nvme4: I/O tag 22 (2016) opcode 0x2 (Admin Cmd) QID 0 timeout, reset controller": ("nvme-reset", S, D, "nvme4"),
    "nvme nvme0: I/O 5 QID 1 timeout, aborting": ("nvme-timeout", N, D, "nvme0"),
    "nvme nvme10: I/O 12 QID 3 timeout, completion polled": ("nvme-timeout", N, D, "nvme10"),
    "critical medium error, dev nvme1n1, sector 2411724800 op 0x0:(READ) flags 0x80700 phys_seg 32 prio class 2": (
        ("medium-error", S, D, "nvme1n1")
    ),
    "blk_update_request: I/O error, dev nvme0n1, sector 4823910": ("io-error", S, D, "nvme0n1"),
    "I/O error, dev sda, sector 9240 op 0x1:(WRITE) flags 0x800 phys_seg 1 prio class 2": ("io-error", S, D, "sda"),
    "Buffer I/O error on dev dm-0, logical block 1308098575, lost async page write": ("io-error", S, D, "dm-0"),
    "block nvme0n1: no available path - failing I/O": ("io-error", S, D, "nvme0n1"),
    "EXT4-fs error (device nvme0n1p1): ext4_find_entry:1463: inode #2: comm cp: reading directory lblock 0": (
        ("filesystem-error", S, D, "nvme0n1p1")
    ),
    "EXT4-fs (dm-17): Remounting filesystem read-only": ("filesystem-read-only", S, D, "dm-17"),
    "XFS (sda3): Filesystem has been shut down due to log error (0x2).": ("filesystem-down", S, D, "sda3"),
    "XFS (dm-1): Corruption of in-memory data detected.  Shutting down filesystem": ("filesystem-down", S, D, "dm-1"),
    "pcieport 0000:89:02.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)": (
        ("pcie-fatal", S, D, "pci:0000:89:02.0")
    ),
    "bnxt_en 0000:04:00.0: AER: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Inaccessible, (Unregistered Agent ID)": (
        ("pcie-fatal", S, D, "pci:0000:04:00.0")
    ),
    "nvme 0000:01:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)": (
        ("pcie-uncorrected", N, D, "pci:0000:01:00.0")
    ),
    "pcieport 0000:00:1c.5: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)": (
        ("pcie-corrected", N, D, "pci:0000:00:1c.5")
    ),
    "mlx5_core 0000:00:03.0: poll_health:803:(pid 519): Fatal error 3 detected": ("mlx5-disabled", N, L, "pci:0000:00:03.0"),
    "mlx5_core 0000:00:03.0: poll_health:803:(pid 519): Fatal error 1 detected": ("mlx5-fatal", S, L, "pci:0000:00:03.0"),
    "mlx5_core 0000:d2:00.0: poll_health:825:(pid 0): device's health compromised - reached miss count": (
        ("mlx5-fatal", S, L, "pci:0000:d2:00.0")
    ),
    "mlx5_core 0000:d2:00.0: print_health_info:430:(pid 0): Health issue observed, firmware internal error, severity(3) ERROR:": (
        ("mlx5-health", N, L, "pci:0000:d2:00.0")
    ),
    "mlx5_core 0000:d2:00.0: mlx5_port_module_event:1131:(pid 0): Port module event[error]: module 0, Cable error, High Temperature": (
        ("mlx5-module", S, L, "pci:0000:d2:00.0")
    ),
    "mlx5_core 0000:01:00.0 enp1s0f0np0: Link down": ("link-down", S, L, "enp1s0f0np0"),
    "ixgbe 0000:42:00.1 enp66s0f1: NIC Link is Down": ("link-down", S, L, "enp66s0f1"),
    "r8169 0000:06:00.0 eth0: link down": ("link-down", S, L, "eth0"),
    "igb 0000:07:00.0 eno1: igb: eno1 NIC Link is Down": ("link-down", S, L, "eno1"),
    "Out of memory: Killed process 9620 (python) total-vm:33363436kB, anon-rss:22720548kB, file-rss:84kB": ("out-of-memory", N, H, ""),
    "Memory cgroup out of memory: Killed process 4182 (order-worker) total-vm:812044kB, anon-rss:518420kB": ("out-of-memory", N, H, ""),
    "INFO: task jfsmount:136986 blocked for more than 120 seconds.": ("hung-task", N, H, ""),
    "watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [python3:2254956]": ("soft-lockup", N, H, ""),
}
UP = {
    "mlx5_core 0000:01:00.0 enp1s0f0np0: Link up": "enp1s0f0np0",
    "ixgbe 0000:42:00.1 enp66s0f1: NIC Link is Up 10 Gbps, Flow Control: RX/TX": "enp66s0f1",
    "r8169 0000:06:00.0 eth0: link up": "eth0",
}
ALIKE = [
    "NVRM: GPU at PCI:0000:9b:00: GPU-b850f46d-d5ea-c752-ddf3-c4453e44d3f7",
    "NVRM: GPU 0000:3b:00.0: GPU serial number is 1652922011372.",
    "NVRM: Xid 79",
    " NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.",
    "audit: NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.",
    "python[12]: NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.",
    "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Severity 1 Engine instance 62 Sub-engine instance 00",
    "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Data {0x10000000, 0x10000000}",
    "amdgpu 0000:0b:00.0: amdgpu: no uncorrectable hardware errors detected in umc block",
    "amdgpu 0000:0b:00.0: amdgpu: socket: 0, die: 0, 0 new uncorrectable hardware errors detected in umc block",
    "amdgpu 0000:c1:00.0: amdgpu: {17}socket: 4, die: 0, 3 uncorrectable hardware errors detected in total in umc block",
    "amdgpu 0000:33:00.0: amdgpu: GPU reset succeeded, trying to resume",
    "amdgpu 0000:c1:00.0: amdgpu: GPU reset(7) succeeded!",
    "amdgpu 0000:c1:00.0: amdgpu: GPU reset end with ret = 0",
    "amdgpu 0000:33:00.0: amdgpu: ring gfx_0.0.0 uses VM inv eng 0 on hub 0",
    "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring sdma0 timeout, signaled seq=121570, emitted seq=121572",
    "amdgpu 0000:c5:00.0: amdgpu:  Process GPU reset begin! pid 1048641 thread code:cs0 pid 1048662",
    "amdgpu: GPU reset begin!",
    "amdgpu 0000:42:00.0: {1}[Hardware Error]: Accelerator Check Architecture events logged",
    "amdgpu 0000:0f:00.0: amdgpu: ERROR: GPU under temperature range detected",
    "mce: CPU supports 32 MCE banks",
    "mce: [Hardware Error]: PROCESSOR 0:50654 TIME 1600000000 SOCKET 0 APIC 0 microcode 2000065",
    "mce: CPU0: Package temperature/speed normal",
    "EDAC MC0: Giving out device to module skx_edac controller Skylake Socket#0 IMC#0: DEV 0000:3a:0a.0 (INTERRUPT)",
    "EDAC MC: Ver: 3.0.0",
    "{1}[Hardware Error]:  Error 0, type: recoverable",
    "Memory failure: 0x29b8cf5: Sending SIGBUS to python:123 due to hardware memory corruption",
    "nvme nvme0: Shutdown timeout set to 10 seconds",
    "nvme nvme0: 12/0/0 default/read/poll queues",
    "nvme 0000:01:00.0: enabling device (0000->0002)",
    "EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode",
    "XFS (dm-0): Unmounting Filesystem",
    "pcieport 0000:00:1c.5: AER: Corrected error received: 0000:00:1c.5",
    "pcieport 0000:00:1c.5:   device [8086:a115] error status/mask=00000001/00002000",
    "mlx5_core 0000:01:00.0: Port module event: module 0, Cable plugged",
    "mlx5_core 0000:00:03.0: firmware version: 28.41.1000",
    "br0: port 2(p1) entered disabled state",
    "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
    "bond0: link status definitely down for interface eth8, disabling it",
    "e1000e 0000:00:1f.6 eth0: NIC Link is Downwards",
    "python invoked oom-killer: gfp_mask=0x140dca(GFP_HIGHUSER_MOVABLE|__GFP_ZERO|__GFP_COMP), order=0, oom_score_adj=0",
    "EDAC MC0: 1 UE invoked oom-killer: gfp_mask=0x140dca(GFP_HIGHUSER_MOVABLE|__GFP_ZERO|__GFP_COMP), order=0, oom_score_adj=0",
    "oom_reaper: reaped process 9620 (python), now anon-rss:0kB, file-rss:84kB, shmem-rss:0kB",
    "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task=python,pid=9620,uid=0",
    "INFO: task jfsmount:136986 is fine",
    "",
]
