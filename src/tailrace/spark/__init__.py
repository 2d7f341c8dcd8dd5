"""Workers as Spark tasks. The only package that imports pyspark."""
