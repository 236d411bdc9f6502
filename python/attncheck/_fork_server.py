"""Forks workers from a process that has imported the module of a candidate.

The suite starts a worker for every property, and anew for every run that confirms a finding; a
module that imports torch would take seconds each time. One import serves them all.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import time
import warnings

_MOST_DESCRIPTORS = 3  # socket, arena, and standard error where it is shown


def count_threads() -> int:
    """Threads of this process, those of libraries included."""
    return len(os.listdir("/proc/self/task"))


def may_fork(threads_before: int) -> bool:
    """Whether a copy of this process would work as the original does.

    A copy has one thread. What the module started when it was imported (a pool of threads, a device) would be
    missing there. Threads that were there before it, NumPy's own, know how to be copied.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return False
    return count_threads() <= threads_before


def serve_forks(control_fd: int) -> tuple[int, int]:
    """Answers requests for workers with their process numbers until the suite is gone.

    Returns in each worker, with the descriptors of its socket and of the arena.
    """
    warnings.simplefilter("ignore", DeprecationWarning)  # of os.fork beside NumPy's threads
    gc.collect()
    gc.freeze()  # copies do not touch, and so do not copy, what is there already
    control = socket.socket(fileno=control_fd)
    while True:
        request, descriptors, _, _ = socket.recv_fds(control, 1, _MOST_DESCRIPTORS)
        if not request:
            os._exit(0)
        pid = _fork_orphan()
        if pid == 0:
            control.close()
            if len(descriptors) == _MOST_DESCRIPTORS:
                os.dup2(descriptors[2], 2)
                os.close(descriptors[2])
            return descriptors[0], descriptors[1]
        for descriptor in descriptors:
            os.close(descriptor)
        control.sendall(pid.to_bytes(8, sys.byteorder))


def _fork_orphan() -> int:
    """Forks a process that the suite adopts, as if it had started it: its number, 0 in itself."""
    told, tells = os.pipe()
    middle = os.fork()
    if middle == 0:
        own = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(told)
            os.close(tells)
            os.setpgid(0, 0)
            while os.getppid() == own:
                time.sleep(0.0002)
            return 0
        os.write(tells, pid.to_bytes(8, sys.byteorder))
        os._exit(0)
    os.close(tells)
    os.waitpid(middle, 0)
    pid = int.from_bytes(os.read(told, 8), sys.byteorder)
    os.close(told)
    return pid
