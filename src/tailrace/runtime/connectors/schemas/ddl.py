"""Schemas in the words of Spark: ``"id long, name string not null, tags array<string>"``.

A timestamp is an instant (UTC in the file), as in Spark; ``timestamp_ntz`` is a wall-clock reading.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tailrace.errors import OptionError

_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|(\w+)|([<>(),:]))")

_SIMPLE = {
    "boolean": "bool_",
    "byte": "int8",
    "tinyint": "int8",
    "short": "int16",
    "smallint": "int16",
    "int": "int32",
    "integer": "int32",
    "long": "int64",
    "bigint": "int64",
    "float": "float32",
    "real": "float32",
    "double": "float64",
    "string": "string",
    "binary": "binary",
    "date": "date32",
}


def parse_ddl(text: str) -> Any:
    """The pyarrow schema that ``text`` describes."""
    import pyarrow as pa

    return pa.schema(_Parser(text).fields(end=""))


def check_names(names: Sequence[str], schema: str) -> None:
    """Refuse columns of one name; Spark, which reads the files, does not look at the case."""
    lowered = [name.lower() for name in names]
    doubled = sorted({name for name in names if lowered.count(name.lower()) > 1})
    if doubled:
        raise OptionError(f"schema names a column twice: columns={doubled} schema={schema}, is one of them a typo?")


class _Parser:
    """Recursive descent over the tokens; ``""`` marks the end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, int]] = []
        self._at = 0
        position, end = 0, len(text.rstrip())
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._error(f"unexpected {text[position:].strip()[0]!r}", position)
            self._tokens.append((match[0].strip(), match.end()))
            position = match.end()
        self._tokens.append(("", end))

    def fields(self, end: str) -> list[Any]:
        """``name type, name: type not null, ...`` up to the token ``end``."""
        fields = [self._field()]
        while self._accept(","):
            fields.append(self._field())
        self._expect(end)
        check_names([field.name for field in fields], repr(self._text))
        return fields

    def _field(self) -> Any:
        import pyarrow as pa

        name = self._take()
        if not name or name in "<>(),:":
            raise self._error(f"expected a column name, found {name or 'the end'!r}")
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        self._accept(":")
        kind = self._type()
        nullable = not self._accept("not")
        if not nullable:
            self._expect("null")
        return pa.field(name, kind, nullable)

    def _type(self) -> Any:
        import pyarrow as pa

        name = self._take().lower()
        if name in _SIMPLE:
            return getattr(pa, _SIMPLE[name])()
        if name in ("timestamp", "timestamp_ltz"):
            return pa.timestamp("us", tz="UTC")
        if name == "timestamp_ntz":
            return pa.timestamp("us")
        if name in ("varchar", "char"):
            self._numbers(1)
            return pa.string()
        if name in ("decimal", "dec", "numeric"):
            return self._decimal(*(self._numbers(2) if self._peek() == "(" else (10, 0)))
        if name in ("array", "map", "struct"):
            return self._nested(name)
        raise self._error(f"unknown type {name or 'the end'!r}")

    def _decimal(self, precision: int, scale: int = 0) -> Any:
        import pyarrow as pa

        if not (1 <= precision <= 38 and scale <= precision):
            raise self._error(f"a decimal has 1 to 38 digits, and no more behind the point, not ({precision},{scale})")
        return pa.decimal128(precision, scale)

    def _nested(self, name: str) -> Any:
        import pyarrow as pa

        self._expect("<")
        if name == "struct":
            return pa.struct(self.fields(end=">"))
        first = self._type()
        if name == "array":
            self._expect(">")
            return pa.list_(first)
        self._expect(",")
        second = self._type()
        self._expect(">")
        return pa.map_(first, second)

    def _numbers(self, most: int) -> tuple[int, ...]:
        self._expect("(")
        numbers = [self._number()]
        while len(numbers) < most and self._accept(","):
            numbers.append(self._number())
        self._expect(")")
        return tuple(numbers)

    def _number(self) -> int:
        token = self._take()
        if not token.isdecimal():
            raise self._error(f"expected a number, found {token or 'the end'!r}")
        return int(token)

    def _peek(self) -> str:
        return self._tokens[self._at][0]

    def _take(self) -> str:
        token = self._tokens[self._at][0]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _accept(self, token: str) -> bool:
        if self._peek().lower() != token:
            return False
        self._take()
        return True

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            raise self._error(f"expected {token or 'the end'!r}, found {self._peek() or 'the end'!r}")

    def _error(self, fault: str, position: int | None = None) -> OptionError:
        where = self._tokens[self._at][1] if position is None else position
        return OptionError(
            f"schema cannot be read: {fault} near={self._text[max(0, where - 20) : where + 10]!r} "
            f"schema={self._text!r}, is it written like 'id long, name string'?"
        )
