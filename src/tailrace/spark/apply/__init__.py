"""A whole topology as one step of a Spark job: rows of a DataFrame in, rows of another one out."""
