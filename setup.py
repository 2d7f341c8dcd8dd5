"""The C extension; everything else about the project is in pyproject.toml."""

from setuptools import Extension, setup

HEADERS = ("layout", "wait", "pair", "shared", "steps", "common", "pair_type", "shared_type")

setup(
    ext_modules=[
        Extension(
            "tailrace.ring._ring",
            ["src/tailrace/ring/_ring.c"],
            depends=[f"src/tailrace/ring/_{name}.h" for name in HEADERS],
            extra_compile_args=["-std=c11", "-D_GNU_SOURCE", "-O3"],
            py_limited_api=True,
            optional=True,  # without a compiler, links go over TCP
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
