"""The papers' experiments, run again: parameter grids on Spark, and reports of theirs beside ours."""
