"""``bench dataframe``: slow, limited and paid calls in the middle of a Spark job, beside what Spark alone does."""
