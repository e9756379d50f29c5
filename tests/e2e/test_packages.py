"""What `scripts/package` builds installs and runs where no index has rota or rota-trainer.

The third-party packages come from the index that pip is configured for, once, into a folder; every
installation after that sees only folders.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT, project_files, relative

BUNDLE_NAME = "rota-*-cp*-linux_*"
ALL_DONE = "7 of 7 jobs succeeded, in 8 attempts."
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    """A folder that other users can enter, so that their jobs can use the Python in it."""
    folder = Path(tempfile.mkdtemp(prefix="rota-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def clone(scratch: Path) -> Path:
    """The files of the project without the environment of this folder."""
    target = scratch / "clone"
    for path in project_files():
        copied = target / relative(path)
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copied)
    return target


@pytest.fixture(scope="module")
def built(scratch: Path, clone: Path) -> Path:
    """The folder with the wheels, the source distributions and the bundle."""
    dist = scratch / "dist"
    run([str(clone / "scripts/package"), "--bundle", str(dist)])
    return dist


@pytest.fixture(scope="module")
def third_party(scratch: Path, built: Path) -> Path:
    """Wheels of everything that rota needs, and of the tool that builds it."""
    folder = scratch / "third-party"
    constraints = ["-c", str(ROOT / "constraints.txt")]
    wheels = map(str, built.glob("*.whl"))
    run(
        [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "-d",
            str(folder),
            *constraints,
            *wheels,
            "hatchling",
        ]
    )
    for own in folder.glob("rota*"):
        own.unlink()
    return folder


def run(command: list[str], **options: str | None) -> str:
    """With the Python that the test environment was made from, which has no packages."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env["PATH"] = f"{sys.base_prefix}/bin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    done = subprocess.run(
        command, cwd=options.get("cwd"), env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def empty_environment(folder: Path) -> Path:
    run([sys.executable, "-m", "venv", str(folder)])
    return folder / "bin"


def from_folders(commands: Path, *words: str, folders: list[Path], cwd: Path) -> None:
    """Install without any index."""
    sources = [word for folder in folders for word in ("-f", str(folder))]
    run([str(commands / "pip"), "install", "-q", "--no-index", *sources, *words], cwd=str(cwd))


def test_demo_runs_with_rota_from_a_folder_of_wheels(
    scratch: Path, built: Path, third_party: Path, clone: Path
) -> None:
    commands = empty_environment(scratch / "wheels")
    from_folders(commands, "rota", folders=[built, third_party], cwd=scratch)
    assert run([str(commands / "rota"), "--version"]).startswith("rota ")
    output = run([str(commands / "python"), str(clone / "examples/demo.py")])
    assert ALL_DONE in output, output


def test_rota_installs_from_a_clone(scratch: Path, third_party: Path, clone: Path) -> None:
    commands = empty_environment(scratch / "from-clone")
    from_folders(commands, ".", folders=[third_party], cwd=clone)
    assert run([str(commands / "rota"), "--version"]).startswith("rota ")
    assert "usage" in run([str(commands / "rota-trainer"), "--help"])


def test_rota_installs_from_source_distributions(
    scratch: Path, built: Path, third_party: Path
) -> None:
    sources = scratch / "sources"
    sources.mkdir()
    for path in built.glob("*[0-9].tar.gz"):
        shutil.copy2(path, sources)
    commands = empty_environment(scratch / "from-sources")
    words = ["--no-deps", "rota", "rota-trainer"]
    from_folders(commands, *words, folders=[sources, third_party], cwd=scratch)
    assert run([str(commands / "rota"), "--version"]).startswith("rota ")


@needs_root
def test_demo_runs_from_the_bundle_without_a_network(scratch: Path, built: Path) -> None:
    (archive,) = built.glob(f"{BUNDLE_NAME}.tar.gz")
    target = scratch / "unpacked"
    target.mkdir()
    run(["tar", "-xzf", str(archive), "-C", str(target)])
    (folder,) = target.iterdir()
    namespace = f"rota-{os.getpid()}"
    run(["ip", "netns", "add", namespace])
    try:
        inside = ["ip", "netns", "exec", namespace]
        assert run([*inside, "ip", "-o", "route", "show"]) == ""
        assert run([*inside, str(folder / "bin/rota"), "--version"]).startswith("rota ")
        demo = [str(folder / "bin/python"), str(folder / "examples/demo.py")]
        output = run([*inside, *demo])
    finally:
        run(["ip", "netns", "del", namespace])
    assert ALL_DONE in output, output


def test_command_of_the_bundle_works_through_a_link_and_ignores_pythonpath(
    scratch: Path, built: Path
) -> None:
    (folder,) = (path for path in built.glob(BUNDLE_NAME) if path.is_dir())
    link = scratch / "rota"
    link.symlink_to(folder / "bin/rota")
    (scratch / "rota.py").write_text("raise SystemExit('the wrong module')")
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(scratch)}
    done = subprocess.run(
        [link, "--version"], env=env, cwd=scratch, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
