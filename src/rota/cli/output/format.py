"""Formats times, durations, sizes and numbers for people."""

from __future__ import annotations

import math

MAX_DAYS = 9999
LONG_S = 100.0
MINUTE_S = 60.0


def span(seconds: float | None) -> str:
    """`42s`, `5m10s`, `3h05m`, `2d04h`."""
    if seconds is None:
        return "-"
    whole = max(0, int(seconds))
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days > MAX_DAYS:
        return f">{MAX_DAYS}d"
    if days:
        return f"{days}d{hours:02}h"
    if hours:
        return f"{hours}h{minutes:02}m"
    if minutes:
        return f"{minutes}m{whole % 60:02}s"
    return f"{whole}s"


def moment(at_s: float | None) -> str:
    """A time in the local zone, to the second."""
    if at_s is None:
        return "-"
    from datetime import datetime

    return datetime.fromtimestamp(at_s).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def clock_time(at_s: float, now: float, *, error_s: float) -> str:
    """`14:05` today (with seconds if the error is below a minute), `Sep 22 14:05` on another day,
    `2027-01-05` in another year."""
    from datetime import datetime

    then, today = (datetime.fromtimestamp(each).astimezone() for each in (at_s, now))
    if then.date() == today.date():
        return then.strftime("%H:%M" if error_s >= MINUTE_S else "%H:%M:%S")
    return then.strftime("%b %d %H:%M" if then.year == today.year else "%Y-%m-%d")


def time_error(seconds: float) -> str:
    """The error of a time in the largest whole unit: `40 s`, `6 min`, `3 h`, `2 d`."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{math.ceil(max(0.0, seconds))} s"


def short_time(seconds: float | None) -> str:
    """A measured duration with three digits: `12.4 ms`, `1.53 s`, `4m07s`."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    if seconds >= LONG_S:
        return span(seconds)
    for unit, length in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return "0 s" if seconds <= 0 else f"{seconds / 1e-6:.2g} us"


def amount(n_bytes: float) -> str:
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes:g} B"


def figure(value: float | None) -> str:
    """A number with four significant digits."""
    return "-" if value is None or not math.isfinite(value) else f"{value:.4g}"
