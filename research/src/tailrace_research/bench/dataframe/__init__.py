"""``bench dataframe``: slow, limited and paid calls, and skewed rows in Spark jobs, beside plain Spark."""
