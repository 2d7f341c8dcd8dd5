"""Policies by name, for the command line and for configurations, such as ``lbf`` or ``replicate=0.2``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from tailrace.errors import OptionError, did_you_mean

Policy = TypeVar("Policy")


@dataclass(frozen=True)
class Named(Generic[Policy]):
    """A table of policies by name. Calling it with a text, a name or ``name=number``, makes the policy."""

    option: str  # the option that takes the text, for errors
    what: str  # what it names, for errors
    plain: Mapping[str, Callable[[], Policy]]  # names without a number
    numbered: Mapping[str, Callable[[float], Policy]]  # names with a number
    examples: Mapping[str, str]  # a number for each of these, for errors

    def __call__(self, text: str) -> Policy:
        name, given, number = text.partition("=")
        if name in self.plain and not given:
            return self.plain[name]()
        if name in self.numbered:
            return self.numbered[name](self._number(text, name, number))
        known = [*self.plain, *(f"{name}=NUMBER" for name in self.numbered)]
        raise OptionError(
            f"unknown {self.what}: {self.option}={text}: {did_you_mean(name + given.replace('=', '=NUMBER'), known)}"
        )

    def _number(self, text: str, name: str, number: str) -> float:
        try:
            return float(number)
        except ValueError:
            fault = f"a {self.what} needs a number: {self.option}={text}"
            raise OptionError(f"{fault}: did you mean {name}={self.examples[name]}?") from None
