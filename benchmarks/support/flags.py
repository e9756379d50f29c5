"""Command line flags that all benchmarks share."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.support.markdown import RESULTS


def flags(about: str, *, page: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument(
        "--out", type=Path, default=RESULTS / page, metavar="FILE", help="the page to write"
    )
    return parser
