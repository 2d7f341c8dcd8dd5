"""``bench engine``: word count and three hops, beside Bytewax, bare sockets and Spark's micro-batches."""
