"""``bench dataframe``: slow, limited and paid calls, skewed rows and streams in Spark jobs, beside plain Spark."""
