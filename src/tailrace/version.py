"""The version of this package, for those who may not import all of it."""

VERSION = "0.1.0.dev0"
