"""Run in a pod before its worker: fetches what was shipped with the job into a folder.

It is given to an image's Python as text, so that it may use no more than the standard library of
any version.
"""

import http.client
import json
import os
import shutil
import sys
import tarfile
import time
import urllib.error
import urllib.request
from pathlib import Path

PATIENCE_S = 300.0
PAUSE_S = 2.0
SILENCE_S = 30.0
CANNOT, NOT_NOW = 1, 75
FIRST_SERVER_ERROR = 500
BROKEN = (OSError, EOFError, ValueError, tarfile.TarError, http.client.HTTPException)


def fetch(folder: str) -> None:
    url, token = os.environ["ROTA_URL"], os.environ["ROTA_TOKEN"]
    ask = urllib.request.Request(url + "/v1/code", headers={"Authorization": "Bearer " + token})
    with urllib.request.urlopen(ask, timeout=SILENCE_S) as answer:
        with tarfile.open(fileobj=answer, mode="r|") as archive:
            # The daemon checked all of it when it came, links included.
            archive.extraction_filter = lambda member, _: member
            archive.extractall(folder)
        # Without its end it is not whole.
        answer.read()


def clear(folder: str) -> None:
    """Of what an earlier try left. The folder itself is a volume, and stays."""
    for each in Path(folder).iterdir():
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(str(each))
        else:
            each.unlink()


def message(said: bytes) -> str:
    """Of the daemon's answer, or what something in between had to say."""
    try:
        return str(json.loads(said.decode())["message"])
    except (ValueError, LookupError, TypeError):
        return said.decode(errors="replace")


def main(folder: str) -> int:
    give_up_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            clear(folder)
            fetch(folder)
            return 0
        except urllib.error.HTTPError as error:
            words, is_final = message(error.read(4096)), error.code < FIRST_SERVER_ERROR
        except BROKEN as error:
            words, is_final = str(error) or type(error).__name__, False
        if is_final or time.monotonic() > give_up_s:
            sys.stderr.write(words + "\n")
            return CANNOT if is_final else NOT_NOW
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
