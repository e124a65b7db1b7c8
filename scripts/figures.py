"""Print the size figures of the code beside what we aim for. They inform; nothing fails on them.

A function's body is counted in lines of code: no docstring, no comments, no blank lines. Kernels are left out
of the function figures, as a tight loop is often clearest in one piece.
"""

from __future__ import annotations

import ast
import io
import statistics
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
SRC, TESTS = PROJECT / "src", PROJECT / "tests"

NOT_CODE = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function, the lines of code in its body, and whether its return type is written."""

    place: str
    lines: int
    has_return_type: bool
    is_kernel: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What one file counts: all lines, lines of code, lines of comments, functions."""

    place: str
    lines: int
    code: int
    comments: int
    functions: tuple[Function, ...]


def read(path: Path) -> Source:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    code, comments = line_kinds(text, docstring_lines(tree))
    place = str(path.relative_to(PROJECT))
    return Source(
        place=place,
        lines=text.count("\n"),
        code=len(code),
        comments=len(comments),
        functions=tuple(functions(tree, code, place)),
    )


def line_kinds(text: str, docstrings: set[int]) -> tuple[set[int], set[int]]:
    """Return the numbers of the lines with code and of those with a comment; a line may be both."""
    code: set[int] = set()
    comments: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        lines = range(token.start[0], token.end[0] + 1)
        if token.type == tokenize.COMMENT:
            comments.update(lines)
        elif token.type not in NOT_CODE:
            code.update(lines)
    return code - docstrings, comments


def docstring_lines(tree: ast.Module) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            lines.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return lines


def functions(tree: ast.Module, code: set[int], place: str) -> Iterator[Function]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = range(node.body[0].lineno, (node.end_lineno or 0) + 1)
            yield Function(
                place=f"{place}:{node.lineno} {node.name}",
                lines=len(code.intersection(body)),
                has_return_type=node.returns is not None,
                is_kernel="/kernels/" in place,
            )


def share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def percentile(values: Sequence[int], part: float) -> int:
    """Return the smallest value that at least `part` of the values do not exceed, 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0


def rows(src: list[Source], tests: list[Source]) -> Iterator[tuple[str, str, str]]:
    """Yield (figure, value, aim)."""
    every = [function for source in src for function in source.functions]
    bodies = [function.lines for function in every if not function.is_kernel]
    files = [source.lines for source in src if source.lines]
    code = sum(source.code for source in src)
    yield "files, lines of code", f"{len(src)}, {code}", ""
    yield "file, median lines", f"{statistics.median(files or [0]):.0f}", "<= 200"
    yield "files above 600 lines", f"{sum(lines > 600 for lines in files)}", "0"
    yield "function body, median lines", f"{statistics.median(bodies or [0]):.0f}", "<= 8"
    yield "function body, 9 of 10 up to", f"{percentile(bodies, 0.9)}", "<= 30"
    yield "function bodies above 80", f"{sum(lines > 80 for lines in bodies)}", "0"
    yield "comments per line of code", f"{share(sum(s.comments for s in src), code):.1%}", "5-8%"
    yield "return types written", f"{share(sum(f.has_return_type for f in every), len(every)):.0%}", "100%"
    yield "tests per line of src", f"{share(sum(s.code for s in tests), code):.2f}", ">= 1"


def largest(src: list[Source]) -> Iterator[str]:
    """Yield the places that are above an aim."""
    yield from (f"{source.place}: {source.lines} lines" for source in src if source.lines > 600)
    for source in src:
        for function in source.functions:
            if function.lines > 80 and not function.is_kernel:
                yield f"{function.place}: {function.lines} lines"


def main() -> None:
    src, tests = ([read(path) for path in sorted(root.rglob("*.py"))] for root in (SRC, TESTS))
    print("size figures (for information)")
    for figure, value, aim in rows(src, tests):
        print(f"  {figure:<30}{value:>12}   {aim}".rstrip())
    for place in largest(src):
        print(f"  above the aim: {place}")


if __name__ == "__main__":
    main()
