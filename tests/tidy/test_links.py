"""Every link between documents leads somewhere, and the index names every page."""

from pathlib import Path

from tests.tidy.links import LINK, broken_links
from tests.tidy.tree import ROOT, project_files, relative

DOCS = ROOT / "docs"
LISTED_AS_FOLDERS = ("docs/adr/",)


def test_links_between_documents_resolve() -> None:
    broken = [
        f"{relative(page)} -> {target}"
        for page in project_files()
        if page.suffix == ".md"
        for target in broken_links(page)
    ]
    assert not broken, "\n".join(broken)


def test_the_index_names_every_page() -> None:
    linked = {
        (DOCS / (match[1] or match[2]).partition("#")[0]).resolve()
        for match in LINK.finditer((DOCS / "index.md").read_text())
    }
    pages = {page for page in DOCS.rglob("*.md") if page != DOCS / "index.md"}
    missing = [
        relative(page)
        for page in sorted(pages - linked)
        if not relative(page).startswith(LISTED_AS_FOLDERS)
    ]
    assert not missing, f"add to docs/index.md: {missing}"


def test_a_missing_file_and_a_missing_heading_are_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# Title\n\n## `rota up` now\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md) [b](other.md#rota-up-now) [c](#here) `[d](no.md)`\n\n"
        "[e](gone.md) [f](other.md#gone) [g](#gone)\n"
        '<img src="gone.svg">\n\n## Here\n'
    )
    assert list(broken_links(page)) == ["gone.md", "other.md#gone", "#gone", "gone.svg"]
