"""Every Python block of README.md and docs/ runs, prints what the page says, and names real commands.

The blocks of a page run from top to bottom in one namespace. A ``text`` block directly after a ``python``
block is what it prints. A block opened with ``python spark`` starts Spark and is run among the Spark tests.
"""

from __future__ import annotations

import contextlib
import io
import re
import traceback
from collections.abc import Iterator
from itertools import pairwise, zip_longest
from pathlib import Path
from types import TracebackType

import pytest

from tests.docs.markdown import PROJECT, Block, anchors, blocks, commands, links, page_id, pages

PAGES = pages()


def run_page(path: Path, *, with_spark: bool) -> int:
    """Run the page's blocks and return how many; fail where the output differs from the page."""
    text = path.read_text(encoding="utf-8")
    namespace: dict[str, object] = {"__name__": "__main__"}
    count = 0
    for block, after in with_next(blocks(text)):
        if block.language != "python" or ("spark" in block.info and not with_spark):
            continue
        printed = run_block(path, block, namespace)
        count += 1
        if after is not None and after.language == "text" and is_directly_after(text, block, after):
            place = f"{path.name}:{after.first_line}"
            assert trimmed(printed) == trimmed(after.text), f"{place}: the page shows another output"
    return count


def with_next(items: list[Block]) -> Iterator[tuple[Block, Block | None]]:
    """Yield each block with the one after it; the last with None."""
    yield from zip_longest(items, items[1:])


def run_block(path: Path, block: Block, namespace: dict[str, object]) -> str:
    # Empty lines in front let a traceback name the line of the page.
    source = "\n" * (block.first_line - 1) + block.text
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(source, str(path), "exec"), namespace)
    except Exception as error:  # noqa: BLE001  (a snippet may fail in any way)
        # pytest would show the whole page as the failing function.
        shown = "".join(traceback.format_exception(error.with_traceback(without_this_frame(error))))
        pytest.fail(f"{path.name}:{block.first_line}: the snippet fails\n{shown}", pytrace=False)
    return printed.getvalue()


def without_this_frame(error: Exception) -> TracebackType | None:
    return error.__traceback__.tb_next if error.__traceback__ else None


def is_directly_after(text: str, block: Block, after: Block) -> bool:
    between = text.splitlines()[block.last_line + 1 : after.first_line - 2]
    return not "".join(between).strip()


def trimmed(output: str) -> list[str]:
    return [line.rstrip() for line in output.strip("\n").splitlines()]


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_snippets_print_what_the_page_says(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(path, with_spark=False)


def needs_spark(path: Path) -> bool:
    return any("spark" in block.info for block in blocks(path.read_text(encoding="utf-8")))


@pytest.mark.spark
@pytest.mark.parametrize("path", [path for path in PAGES if needs_spark(path)], ids=page_id)
def test_snippets_with_spark_print_what_the_page_says(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(path, with_spark=True)


def test_readme_has_a_snippet_with_its_output() -> None:
    languages = [block.language for block in blocks((PROJECT / "README.md").read_text(encoding="utf-8"))]
    assert ("python", "text") in pairwise(languages)


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_make_commands_exist(path: Path) -> None:
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    known = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    unknown = set(commands(path.read_text(encoding="utf-8"))) - known
    assert not unknown, f"{page_id(path)} names make commands that are not in the Makefile: {sorted(unknown)}"


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_links_between_pages_lead_somewhere(path: Path) -> None:
    broken = [link for link in links(path.read_text(encoding="utf-8")) if not leads_somewhere(path, link)]
    assert not broken, f"{page_id(path)} has links that lead nowhere: {broken}"


def leads_somewhere(page: Path, link: str) -> bool:
    """Return whether the file and the heading exist; links to other sites are not followed."""
    if re.match(r"[a-z]+:", link):
        return True
    name, _, anchor = link.partition("#")
    target = page.parent / name if name else page
    return target.exists() and (not anchor or anchor in anchors(target.read_text(encoding="utf-8")))


PAGE = """# A page

```python
x = 2
```

```python
print(x + 1)
```

```text
{expected}
```
"""


def test_snippets_share_one_namespace(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.format(expected="3"))
    assert run_page(page, with_spark=False) == 2


def test_wrong_output_fails_with_its_place(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.format(expected="4"))
    with pytest.raises(AssertionError, match=r"page\.md:12: the page shows another output"):
        run_page(page, with_spark=False)


def test_error_in_a_snippet_names_the_line_of_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("text\n\n```python\nx = 1\nx / 0\n```\n")
    with pytest.raises(pytest.fail.Exception, match=r'page\.md", line 5(.|\n)*ZeroDivisionError'):
        run_page(page, with_spark=False)


def test_text_block_after_prose_is_not_compared(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1)\n```\n\nA layout:\n\n```text\nsrc/\n```\n")
    assert run_page(page, with_spark=False) == 1


def test_spark_blocks_wait_for_the_spark_tests(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\n```python spark\nx += 1\n```\n")
    assert run_page(page, with_spark=False) == 1
    assert run_page(page, with_spark=True) == 2


def test_commands_are_found_in_code_only() -> None:
    text = "make sure of `make demo` and\n\n```sh\nmake test\n$ make bench ARGS=--quick\n```\n"
    assert commands(text) == ["test", "bench", "demo"]


def test_link_to_missing_heading_leads_nowhere(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One heading\n\n[a](#one-heading) [b](#two) [c](other.md) `[d](e.md)`\n")
    broken = [link for link in links(page.read_text()) if not leads_somewhere(page, link)]
    assert broken == ["#two", "other.md"]


def test_unclosed_block_is_an_error() -> None:
    with pytest.raises(ValueError, match="line 1 is never closed"):
        blocks("```python\nx = 1\n")
