"""A report in a notebook: what `allot report` and `allot compare` wrote, as an object that shows itself.

Reads `report.json`, `tables/*.csv` and `figures/*.svg`, and computes nothing.
"""

from __future__ import annotations

import base64
import csv
import html
import json
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from .errors import Error

#: A cell: a number where it is one, and None where it is empty.
Cell = str | int | float | None

#: Tables that are shown without being asked for.
FIRST = ("result", "frontier")


def report(path: str | PathLike[str]) -> Report:
    """The report in a folder: one that `allot report` wrote, or that of a comparison.

    In a notebook it shows itself. Its numbers are in `tables` and `json`.
    """
    return Report(Path(path))


class Table:
    """A table of a report: `rows` are dicts by the names in `columns`."""

    def __init__(self, path: Path):
        self.name = path.stem
        with path.open(newline="", encoding="utf-8") as file:
            records = list(csv.reader(file))
        self.columns: list[str] = records[0] if records else []
        self.rows: list[dict[str, Cell]] = [
            dict(zip(self.columns, map(_cell, record))) for record in records[1:]
        ]

    def __iter__(self) -> Iterator[dict[str, Cell]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> dict[str, Cell]:
        return self.rows[row]

    def column(self, name: str) -> list[Cell]:
        """The cells of a column."""
        if name not in self.columns:
            raise Error(f"table `{self.name}` has no column `{name}`", f"it has {', '.join(self.columns)}")
        return [row[name] for row in self.rows]

    def to_pandas(self) -> Any:
        """The table as a DataFrame. Needs pandas."""
        import pandas

        return pandas.DataFrame(self.rows, columns=self.columns)

    def __repr__(self) -> str:
        return f"<table {self.name}: {len(self)} rows of {', '.join(self.columns)}>"

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_shown(row[name]))}</td>" for name in self.columns) + "</tr>"
            for row in self.rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


class Figure:
    """A figure of a report: `svg` is its text. Beside it are a PDF and a PNG."""

    def __init__(self, path: Path):
        self.name = path.stem
        self.path = path

    @property
    def svg(self) -> str:
        return self.path.read_text(encoding="utf-8")

    def __repr__(self) -> str:
        return f"<figure {self.name}: {self.path}>"

    def _repr_html_(self) -> str:
        # As an image: names within one SVG would meet those of the next, and no script of a file would run.
        data = base64.b64encode(self.path.read_bytes()).decode()
        return f'<img alt="{html.escape(self.name)}" src="data:image/svg+xml;base64,{data}">'


class Report:
    """A report. `tables` and `figures` are by name, `json` is all of it, and the rest are its sentences."""

    def __init__(self, path: Path):
        below = path / "report"
        folder = below if (below / "report.json").is_file() else path
        file = folder / "report.json"
        if not file.is_file():
            raise Error(
                f"there is no report in `{path}`", f"to write one: allot report {path}, or its folder with --out"
            )
        try:
            self.json: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise Error(f"`{file}` is no report: {error}", f"to write it again: allot report {path}") from None
        if not isinstance(self.json, dict) or "title" not in self.json:
            raise Error(f"`{file}` is no report: it has no title", f"to write it again: allot report {path}")
        self.folder = folder
        self.tables: Mapping[str, Table] = {
            table.stem: Table(table) for table in sorted((folder / "tables").glob("*.csv"))
        }
        self.figures: Mapping[str, Figure] = {
            figure.stem: Figure(figure) for figure in sorted((folder / "figures").glob("*.svg"))
        }

    @property
    def title(self) -> str:
        """What was compared."""
        return str(self.json["title"])

    @property
    def warnings(self) -> list[str]:
        """What does not make a fair comparison."""
        return list(self.json.get("warnings", []))

    @property
    def notes(self) -> list[str]:
        """What a reader should know."""
        return list(self.json.get("notes", []))

    @property
    def verdicts(self) -> list[str]:
        """What it comes to: for each policy but the baseline, on its cost and on its accuracy at the end."""
        both = [verdict.get(part) for verdict in self.json.get("verdicts", []) for part in ("cost", "end")]
        return [f"{found['kind']}: {found['words']}" for found in both if found]

    def __repr__(self) -> str:
        said = [self.title, *(f"warning: {words}" for words in self.warnings), *self.verdicts]
        return "\n".join([*said, f"tables: {', '.join(self.tables)}", f"figures: {', '.join(self.figures)}"])

    def _repr_html_(self) -> str:
        # The curves on the report's own axis, and the front. All figures would be megabytes in a notebook.
        drawn = (f"accuracy-{self.json.get('axis')}", "frontier")
        shown: list[Table | Figure] = [self.tables[name] for name in FIRST if name in self.tables]
        shown += [self.figures[name] for name in drawn if name in self.figures]
        more = f"All of it is in .tables ({', '.join(self.tables)}) and .figures ({', '.join(self.figures)})."
        return "".join(
            [
                f"<h3>{html.escape(self.title)}</h3>",
                _list("Verdicts", self.verdicts),
                _list("Warnings", self.warnings),
                *(part._repr_html_() for part in shown),
                _list("Notes", self.notes),
                f"<p>{html.escape(more)}</p>",
            ]
        )


def _cell(text: str) -> Cell:
    """A cell of CSV. Names stay what they are, also those that look like `nan` or `1_000`."""
    if text == "":
        return None
    if not text.lstrip("+-.").startswith(tuple("0123456789")) or "_" in text:
        return text
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _shown(cell: Cell) -> str:
    if cell is None:
        return ""
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def _list(head: str, sentences: list[str]) -> str:
    items = "".join(f"<li>{html.escape(words)}</li>" for words in sentences)
    return f"<p>{head}:</p><ul>{items}</ul>" if sentences else ""
