"""Nothing that is secret survives, and nothing else is lost."""

from __future__ import annotations

import string

from hypothesis import given
from hypothesis import strategies as st

from rota.client.redact import HIDDEN, redact, redact_env, secrets_of

WORDS = st.text(string.ascii_letters + string.digits, min_size=1, max_size=12)
TEXTS = st.text(max_size=60)
SECRETS = st.text(string.ascii_letters + string.digits + "!#$%^&*()+/=-_.", min_size=6, max_size=40)
SECRET_NAMES = st.sampled_from(
    [
        "HF_TOKEN",
        "WANDB_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "password",
        "DB_PASSWD",
        "PGPASS",
        "MY_CREDENTIALS",
        "GITHUB_PAT",
        "basic_auth",
        "session_id",
        "SSH_KEY",
    ]
)
TOKENS = st.builds(
    "{}{}".format,
    st.sampled_from(["rota_", "rotajob_", "ghp_", "hf_", "sk-", "glpat-", "npm_", "github_pat_"]),
    st.text(string.ascii_letters + string.digits, min_size=20, max_size=40),
)
PLAIN = st.lists(
    st.sampled_from(["epoch", "12", "loss", "0.25", "tokens", "saved", "/data/x.pt", "the", "\n"]),
    max_size=20,
).map(" ".join)


def survives(secret: str, text: str) -> bool:
    """Other than within the word that stands for what was removed."""
    return secret in text.replace(HIDDEN, "\0")


@given(before=TEXTS, secret=SECRETS, after=TEXTS)
def test_a_value_that_is_said_to_be_secret_is_nowhere(before: str, secret: str, after: str):
    text = f"{before}{secret}{after}{secret}"
    assert not survives(secret, redact(text, [secret]))


@given(name=SECRET_NAMES, value=SECRETS, others=st.dictionaries(WORDS, WORDS, max_size=3))
def test_a_secret_variable_is_hidden_and_in_no_other_place(
    name: str, value: str, others: dict[str, str]
):
    env = {**others, name: value}
    assert redact_env(env)[name] == HIDDEN
    log = f"connecting with {value}\nagain: '{value}'"
    if value.lower() not in ("disabled", "enabled", "default"):
        assert value in secrets_of(env)
        assert not survives(value, redact(log, secrets_of(env)))


@given(before=PLAIN, token=TOKENS, after=PLAIN)
def test_tokens_are_known_by_their_form(before: str, token: str, after: str):
    assert redact(f"{before} {token} {after}") == f"{before} {HIDDEN} {after}"
    assert redact_env({"PLAIN": token}) == {"PLAIN": HIDDEN}


@given(
    scheme=st.sampled_from(["http", "https", "postgres", "redis", "s3+https"]),
    user=st.text(string.ascii_letters + string.digits + "._-", max_size=8),
    password=st.text(string.ascii_letters + string.digits + "@:!$&'()*+,;=%", min_size=1),
    host=WORDS,
)
def test_a_url_loses_its_password_and_nothing_else(
    scheme: str, user: str, password: str, host: str
):
    url = f"{scheme}://{user}:{password}@{host}/path"
    assert redact(f"see {url} there") == f"see {scheme}://{user}:{HIDDEN}@{host}/path there"


@given(
    name=st.sampled_from(["password", "api_key", "client-secret", "hf_token", "Credentials"]),
    sign=st.sampled_from(["=", ": ", " = ", ":"]),
    value=st.text(string.ascii_letters, min_size=1, max_size=30),
)
def test_what_is_assigned_to_a_secret_name_is_hidden(name: str, sign: str, value: str):
    assert redact(f"x {name}{sign}{value} y") == f"x {name}{sign}{HIDDEN} y"


@given(flag=st.sampled_from(["--password", "--api-key", "--hf-token"]), value=WORDS)
def test_what_follows_a_secret_flag_is_hidden(flag: str, value: str):
    assert redact(f"run {flag} {value} now") == f"run {flag} {HIDDEN} now"


@given(text=PLAIN)
def test_plain_text_stays_as_it_is(text: str):
    assert redact(text) == text


@given(text=TEXTS, secrets=st.lists(SECRETS, max_size=3))
def test_a_second_time_changes_nothing(text: str, secrets: list[str]):
    once = redact(text, secrets)
    assert redact(once, secrets) == once


@given(text=TEXTS, secret=SECRETS)
def test_lines_stay_lines(text: str, secret: str):
    assert redact(f"{text}\n{secret}\n", [secret]).count("\n") == text.count("\n") + 2


def test_a_private_key_goes_as_a_whole():
    begin, end = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"
    assert redact(f"a\n{begin}\nMIIE\n{end}\nb") == f"a\n{HIDDEN}\nb"
    assert redact(f"a\n{begin}\nMIIE\nwithout an end") == f"a\n{HIDDEN}"


def test_what_only_looks_like_it_is_kept():
    env = {
        "PWD": "/home/user-1",
        "TOKENIZERS_PARALLELISM": "false",
        "AUTHOR": "user-1",
        "THREADS": "4",
        "PATH": "/usr/bin:/bin",
        "KEYBOARD": "us",
        "WANDB_MODE": "offline",
    }
    assert redact_env(env) == env
    log = "tokens: 12345 max_tokens=4096 loss: 0.5 passed: all the password is wrong"
    assert redact(log) == log
