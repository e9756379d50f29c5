"""Every word in the name of a package, module or class is in the glossary or is a plain word."""

import re

from tests.tidy.tree import ROOT, public_classes, python_files

GLOSSARY = ROOT / "docs" / "GLOSSARY.md"
CAPITALISED = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*")
TERM = re.compile(r"\*\*([^*]+)\*\*")

PLAIN_WORDS = """
abortable access api app assignment atomic auth axis backup bar bin body broadcast buffer builtin
case catch change chart check choice cleanup cli client code codec collector complete completion
component composition config connect console container core csv decide delete deleter dir discovery
election ending entry environment error exception extract fd fetch field file fixed flag follow
for format forward fsutil gantt group handler hash html http id ignore init inspection interface
json kill kv label lazy limit listener load loader local lock logfile lookup loop main matching
member memory message migrate model naming native number observed option output packing parameter
parser path pattern pipe planned plot point pool port position problem proc process protocol
quantity queue reader redact refresher registry rejected remaining request resource response retry
route row rule run runtime safe setting setup signal sigterm sizing socket sql sqlite standalone
start stream strict submit svg symlink synthetic table tar tcp terminal thread time top tree type
unit up upload validation version volume wait websocket writer
"""
PLAIN_WORDS_OF_CLASSES = """
a abandoned accepted action address admitted after ambiguous answer any argument arrive ask audit
authenticator background bad batched better broken builder by callback cancelled changed checker
chooser chosen chunk cleaner coder column connection contains content cordoned corrupt count damaged
database default delay deletion dependencies describer detail device directory does dot drained
edited
ended estimate exited explainer failed failure figure filter finish fired fit follower forbidden
forwarder found generator given grow guarded handle handling held hierarchies hindered host
idempotent identity ignored impossible infeasibility info input inspector its join judged kind known
large layout lifetime limited limiter line link list listed loaded location lost many mapping master
matcher me measured middleware missing monitor no not object occupied off often on open other
overbooked overview pacer packed page params pending per piece pinned probe protected
prunable query queued range reconnect recovered refused released remarked removed remover repeat
reported reserved resized restart result reused reviewed reviewer runnable running saved scalar
scale schedule seen shape silent slice slow soon source split splitter startable started starting
stat stop stopped stopping stored submitted tail task tensor threshold timeout timing to too tool
turn unauthorized unavailable unhealthy unix unlisted update value waiter wakeup wanted web work
write yaml yet
"""
PROPER_NAMES = """
afs elasticflow ffdl fifo keras kubernetes l lightning nvml philly pollux rota srjf tiresias tls
torch uvicorn voda
"""
FORMS = {
    "accounting": "account",
    "backs": "back",
    "checkpointing": "checkpoint",
    "forecaster": "forecast",
    "leadership": "leader",
    "placer": "placement",
    "quantities": "quantity",
    "policies": "policy",
    "reporting": "report",
    "sampler": "sample",
    "scheduling": "scheduler",
    "shipping": "shipped",
    "simulate": "simulator",
    "simulation": "simulator",
    "story": "history",
    "watcher": "watch",
}
"""Forms of a glossary word or of a plain word that the rules of `is_known` do not find."""


def glossary_words() -> set[str]:
    terms = TERM.findall(GLOSSARY.read_text())
    return {word for term in terms for word in re.findall(r"[a-z]+", term.lower())}


def is_known(word: str, known: set[str]) -> bool:
    return any(each in known for each in (word, FORMS.get(word, word), word.removesuffix("s")))


def test_words_of_module_names_are_defined() -> None:
    known = glossary_words() | set(PLAIN_WORDS.split()) | set(PROPER_NAMES.split())
    unknown = {
        f"{word} ({path.name})"
        for path in python_files("src", "trainer")
        for part in path.relative_to(ROOT).with_suffix("").parts
        for word in part.strip("_").split("_")
        if word not in ("src", "trainer", "") and not is_known(word, known)
    }
    assert not unknown, f"define in {GLOSSARY.name}, or use another word: {sorted(unknown)}"


def test_words_of_class_names_are_defined() -> None:
    plain = set(PLAIN_WORDS.split()) | set(PLAIN_WORDS_OF_CLASSES.split())
    known = glossary_words() | plain | set(PROPER_NAMES.split())
    unknown = {
        f"{word} ({name})"
        for path in python_files("src", "trainer")
        for name in public_classes(path)
        for word in map(str.lower, CAPITALISED.findall(name))
        if not is_known(word, known)
    }
    assert not unknown, f"define in {GLOSSARY.name}, or use another word: {sorted(unknown)}"


def test_a_term_is_defined_once() -> None:
    terms = [term.lower() for term in TERM.findall(GLOSSARY.read_text())]
    twice = {term for term in terms if terms.count(term) > 1}
    assert not twice, f"give each term one meaning: {sorted(twice)}"
