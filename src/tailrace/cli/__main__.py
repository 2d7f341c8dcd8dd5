"""``python -m tailrace.cli``, for use where the ``tailrace`` script is not on the path."""

from tailrace.cli import main

main()
