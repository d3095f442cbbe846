"""The numbers of the system calls that the filter names, per architecture, from the kernel's unistd headers."""

from __future__ import annotations

import os
import sys

# x86-64 has a table of its own; the 64-bit architectures that came later share one. None: no such call there.
NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_getfd": (438, 438),
    "kcmp": (312, 272), "process_madvise": (440, 440), "process_mrelease": (448, 448), "move_pages": (279, 239),
    "migrate_pages": (256, 238), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "unshare": (272, 97), "setns": (308, 268), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "open_tree": (428, 428),
    "mount_setattr": (442, 442), "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "acct": (163, 89), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "syslog": (103, 116), "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "clock_adjtime": (305, 266), "adjtimex": (159, 171), "sethostname": (170, 161), "setdomainname": (171, 162),
    "iopl": (172, None), "ioperm": (173, None), "vhangup": (153, 58), "lookup_dcookie": (212, 18),
    "fanotify_init": (300, 262), "io_setup": (206, 0), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195),
    "semget": (64, 190), "semop": (65, 193), "semtimedop": (220, 192), "semctl": (66, 191), "msgget": (68, 186),
    "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187), "mq_open": (240, 180), "mq_unlink": (241, 181),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "clone3": (435, 435), "clone": (56, 220),
    "mmap": (9, 222), "prctl": (157, 167), "ioctl": (16, 29), "fcntl": (72, 25), "personality": (135, 92),
    "prlimit64": (302, 261), "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setaffinity": (203, 122),
    "sched_setparam": (142, 118), "sched_setscheduler": (144, 119), "sched_setattr": (314, 274), "socket": (41, 198),
    "bind": (49, 200), "connect": (42, 203), "listen": (50, 201), "sendto": (44, 206), "sendmsg": (46, 211),
    "sendmmsg": (307, 269), "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424), "seccomp": (317, 277), "modify_ldt": (154, None), "sync": (162, 81),
    "syncfs": (306, 267), "open": (2, None), "openat": (257, 56), "openat2": (437, 437),
}  # fmt: skip
LAST_KNOWN = 466  # what came after it, nobody has looked at; x86-64 has its 32-bit-pointer variants far above, too

# Machine: the audit architecture that the kernel shows to filters, and the column above.
MACHINES = {
    "x86_64": (0xC000003E, 0),
    "aarch64": (0xC00000B7, 1),
    "riscv64": (0xC00000F3, 1),
    "loongarch64": (0xC0000102, 1),
}


def machine() -> tuple[int, int] | None:
    """The audit architecture and the column of this interpreter; None for one that is not in the table.

    An interpreter of 32 bits makes other calls than its kernel's name says.
    """
    return MACHINES.get(os.uname().machine) if sys.maxsize > 1 << 32 else None


def number(name: str, column: int) -> int | None:
    return NUMBERS[name][column]
