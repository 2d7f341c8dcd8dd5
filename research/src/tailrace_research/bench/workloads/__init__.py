"""The topologies that the papers measure, generated: drawn by a seed, the same for every run that is compared."""

from collections.abc import Callable

from tailrace_research.bench.workloads.compressor import compressors
from tailrace_research.bench.workloads.content import content, micro
from tailrace_research.bench.workloads.counting import word_count
from tailrace_research.bench.workloads.hosting import hosted_by
from tailrace_research.bench.workloads.live import Outcome, run_workload
from tailrace_research.bench.workloads.network import sol, throughput_test
from tailrace_research.bench.workloads.pages import exclamation, page_load, processing
from tailrace_research.bench.workloads.spending import Computing, LookingUp, Means, Sleeping, Stalls, prepare_lookups
from tailrace_research.bench.workloads.tweets import mention, reaching, walk_unit_ns
from tailrace_research.bench.workloads.workload import Draw, Setup, Workload

WORKLOADS: dict[str, Callable[[Draw], Workload]] = {
    "content": content,
    "micro": micro,
    "word-count": word_count,
    "exclamation": exclamation,
    "page-load": page_load,
    "processing": processing,
    "sol": sol,
    "throughput-test": throughput_test,
    "mention": mention,
    "reach": reaching,
}

__all__ = [
    "WORKLOADS",
    "Computing",
    "Draw",
    "LookingUp",
    "Means",
    "Outcome",
    "Setup",
    "Sleeping",
    "Stalls",
    "Workload",
    "compressors",
    "content",
    "exclamation",
    "hosted_by",
    "mention",
    "micro",
    "page_load",
    "prepare_lookups",
    "processing",
    "reaching",
    "run_workload",
    "sol",
    "throughput_test",
    "walk_unit_ns",
    "word_count",
]
