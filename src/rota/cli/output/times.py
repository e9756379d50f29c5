"""Times and spans as people read them."""

from __future__ import annotations

from datetime import datetime


def span(seconds: float | None) -> str:
    """`42s`, `5m10s`, `3h05m`, `2d04h`."""
    if seconds is None:
        return "-"
    whole = max(0, int(seconds))
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days}d{hours:02}h"
    if hours:
        return f"{hours}h{minutes:02}m"
    if minutes:
        return f"{minutes}m{whole % 60:02}s"
    return f"{whole}s"


def moment(at_s: float | None) -> str:
    """Local time, to the second."""
    if at_s is None:
        return "-"
    return datetime.fromtimestamp(at_s).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def amount(n_bytes: float) -> str:
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes:g} B"
