"""The memory of a process, as Linux counts it."""

from contextlib import suppress
from pathlib import Path

# The largest part that was in memory at once; what the process itself holds in memory now.
PEAK, PRIVATE = "VmHWM", "RssAnon"


def memory_mib(process: str | int, member: str = PEAK) -> float:
    """Returns a process's memory in MiB; 0 once it has ended.

    The peak in `getrusage` is no measure of a child: it is at least that of the process from which
    it was forked.
    """
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith(f"{member}:"):
                return int(line.split()[1]) / 1024
    return 0.0
