"""``python -m tailrace.cli``, where the script is not on the path."""

from tailrace.cli import main

main()
