"""What a job takes along from the process that submits it: folder, umask and variables.

The command line and the Python client use the same rules. A job with an image takes along no
folder and none of the variables: both describe this machine, not the image.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rota.config.load import site_inherit_env
from rota.errors import UserError
from rota.wire.job_request import JobRequest, job_fields

DEFAULT_INHERITED = (
    *("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHONPATH", "LD_LIBRARY_PATH"),
    *("LANG", "LC_*", "TZ"),
    *("HF_*", "HUGGINGFACE_*", "TRANSFORMERS_*", "TOKENIZERS_*", "TORCH_*", "PYTORCH_*"),
    *("TF_*", "KERAS_*", "XLA_*", "JAX_*", "WANDB_*", "MLFLOW_*"),
    *("CUDA_*", "CUDNN_*", "CUBLAS_*", "NCCL_*", "OMP_*", "MKL_*", "OPENBLAS_*", "NUMEXPR_*"),
)
"""Variables that a job inherits by default; `*` stands for any end. The setting `inherit_env` of
the site replaces the list."""
SECRET_PARTS = ("API_KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "PRIVATE_KEY")
NOT_SECRET = ("TOKENIZERS_",)
RESERVED = frozenset(
    {
        *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
        *("EPOCHS_DONE", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
    }
)
"""rota sets these variables, and those that begin with `ROTA_`."""
OF_THE_SHELL = frozenset({"_", "PWD", "OLDPWD", "SHLVL"})
OF_THIS_MACHINE = (
    *("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_*"),
    *("HOME", "TMPDIR", "SHELL"),
)
"""Left out of `--env-all` for a job with an image, which has its own."""


def current_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        hint = "change to another folder with 'cd', and try again"
        raise UserError("the current folder does not exist any more", hint) from None


def with_submit_context(
    request: JobRequest,
    *,
    takes_all: bool = False,
    is_shipped: bool = False,
    inherited: Iterable[str] | None = None,
) -> JobRequest:
    """The request with the folder, umask and variables of this process, where it has none itself.

    `takes_all`: all variables except secrets. `is_shipped`: the job's folder is to be uploaded.
    `inherited`: the variables that a job inherits by default.
    """
    changes: dict[str, Any] = {}
    env: dict[str, str] = {}
    if takes_all:
        env = all_variables(os.environ, has_image=bool(request.image))
    elif not request.image:
        patterns = inherited_patterns() if inherited is None else inherited
        env = inherited_variables(os.environ, patterns)
    if not request.image and not request.workdir and not (is_shipped or request.snapshot):
        changes["workdir"] = str(current_folder())
    if request.umask is None:
        changes["umask"] = _umask()
    return replace(request, env={**env, **request.env}, **changes)


def inherited_patterns() -> tuple[str, ...]:
    """The site's list in `/etc/rota/config.toml` of this machine, else the built-in list."""
    return site_inherit_env() or DEFAULT_INHERITED


def inherited_variables(
    environment: Mapping[str, str], patterns: Iterable[str] = DEFAULT_INHERITED
) -> dict[str, str]:
    """The variables that match the patterns, without secrets and those that rota sets. A secret is
    passed on only by its name: `--env NAME`."""
    exact, beginnings = _split(patterns)
    return {
        name: value
        for name, value in environment.items()
        if (name in exact or name.startswith(beginnings)) and _may_go_along(name, value)
    }


def all_variables(environment: Mapping[str, str], *, has_image: bool) -> dict[str, str]:
    """All variables, without secrets, those that rota or the shell sets, and, for a job with an
    image, those that describe this machine."""
    exact, beginnings = _split(OF_THIS_MACHINE if has_image else ())
    return {
        name: value
        for name, value in environment.items()
        if name not in OF_THE_SHELL
        and not (name in exact or name.startswith(beginnings))
        and _may_go_along(name, value)
    }


def is_secret(name: str) -> bool:
    """Whether the name of a variable says that its value is a secret."""
    upper = name.upper()
    return any(part in upper for part in SECRET_PARTS) and not upper.startswith(NOT_SECRET)


def with_texts(request: JobRequest) -> JobRequest:
    """The request with numbers in its amounts as texts: `gpus=2` means `gpus="2"`."""
    changes: dict[str, Any] = {}
    for name, field in job_fields().items():
        value: object = getattr(request, name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if field.type == "str" and field.info.is_amount and is_number:
            changes[name] = f"{value:g}" if isinstance(value, float) else str(value)
    return replace(request, **changes) if changes else request


def _split(patterns: Iterable[str]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Exact names, and the beginnings of the patterns that end with `*`."""
    known = list(patterns)
    exact = frozenset(each for each in known if not each.endswith("*"))
    return exact, tuple(each[:-1] for each in known if each.endswith("*"))


def _may_go_along(name: str, value: str) -> bool:
    is_valid = name.isascii() and name.replace("_", "a").isalnum() and not name[:1].isdigit()
    is_ours = name in RESERVED or name.startswith("ROTA_")
    return is_valid and not is_ours and not is_secret(name) and _is_text(value)


def _is_text(value: str) -> bool:
    """Whether the value is UTF-8: Python holds other bytes as surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _umask() -> int:
    umask = os.umask(0o022)
    os.umask(umask)
    return umask
