"""The tables of the reference are those that the code describes."""

from __future__ import annotations

from typing import get_type_hints

import pytest

import tailrace as tr
from kit.reference import OF_OPERATORS, PAGES, TABLE, described, tables, with_tables
from tailrace.topology.stream import _Declared


@pytest.mark.parametrize("page", sorted(page.name for page in PAGES.glob("*.md")))
def test_tables_are_up_to_date(page: str) -> None:
    text = (PAGES / page).read_text("utf-8")
    assert text == with_tables(text), "run python tests/kit/reference.py"


def test_every_table_is_in_a_page() -> None:
    texts = [page.read_text("utf-8") for page in PAGES.glob("*.md")]
    assert sorted(match["name"] for text in texts for match in TABLE.finditer(text)) == sorted(tables())


@pytest.mark.parametrize(
    "options",
    [tr.RunOptions, tr.ApplyOptions, tr.OperatorOptions, tr.SinkOptions, tr.SourceOptions, tr.Techniques],
)
def test_every_option_is_described(options: type) -> None:
    assert set(described(options)) == set(get_type_hints(options))
    assert all(text.endswith(".") for _, text in described(options).values())


def test_defaults_of_parameters_are_those_of_the_code() -> None:
    unset = {"tasks", "grouping", "concurrency"}  # None stands for what the table says
    declared = {name: default for name, default in _Declared()._asdict().items() if name not in unset}
    assert declared.items() <= OF_OPERATORS.items()
    assert set(_Declared._fields) == set(OF_OPERATORS) == set(get_type_hints(tr.OperatorOptions))


def test_pages_are_linked_from_the_index() -> None:
    index = (PAGES.parent / "index.md").read_text("utf-8")
    assert all(f"(reference/{page.name})" in index for page in PAGES.glob("*.md"))
