"""There and back: a streaming DataFrame, a topology, and a streaming DataFrame again, which Spark counts by window."""

from tempfile import TemporaryDirectory

import tailrace as tr


def main() -> None:
    spark = tr.local_session()
    with TemporaryDirectory() as home:
        spark.range(900).selectExpr("timestamp_seconds(id) AS at", "id % 220 AS ms").write.parquet(f"{home}/calls")
        calls = spark.readStream.schema("at timestamp, ms long").parquet(f"{home}/calls")  # stands for your stream
        sink = tr.to_parquet(f"{home}/judged", schema="at timestamp, late boolean")

        topology = tr.Topology("judge")
        source = tr.from_stream(calls, folder=f"{home}/handover", trigger={"availableNow": True})
        judged = topology.source("calls", source).map("judge", lambda row: {"at": row["at"], "late": row["ms"] >= 200})
        judged.sink("judged", sink)
        topology.run(spark, workers=2).awaitTermination()

        late = tr.read_stream(spark, sink).where("late").selectExpr("window(at, '5 minutes') AS span")
        query = late.groupBy("span").count().writeStream.format("memory").queryName("late").outputMode("complete")
        query.trigger(availableNow=True).start().awaitTermination()
        for row in spark.sql("SELECT * FROM late ORDER BY span").collect():
            print(f"{row.span.start:%M} to {row.span.end:%M} minutes: {row['count']} late calls")


if __name__ == "__main__":
    main()
