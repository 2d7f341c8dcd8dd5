"""Enriches a DataFrame by a service that hangs, refuses and fails: good rows to one table, failed ones to another.

Calls are made once, for the first write. Both tables are read from what it wrote.
"""

import tempfile
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from pyspark.sql import Observation, Row

import tailrace as tr
from tailrace.testing import Behaviour, serving

USERS = 1000
BEHAVIOUR = Behaviour(hanging=0.01, refusing=0.03, failing=0.01)


def main() -> None:
    api = tr.limit("scores", per_s=400)
    calls = tr.Calls(timeout_s=2, retries=2, retry_on=TimeoutError, hedge=True, limit=api, on_error="column")
    figures = Observation("scores")
    spark = tr.local_session()
    with serving(BEHAVIOUR) as service, tempfile.TemporaryDirectory() as folder:
        url = service.url

        def score(row: Row) -> tuple[int, str]:
            try:
                return row.id, urlopen(f"{url}/{row.id}").read().decode()
            except HTTPError as error:
                if error.code == 429:
                    raise tr.RetryAfter(float(error.headers["Retry-After"])) from None
                raise

        step = tr.map_rows(score, "id long, answer string", calls=calls, observation=figures)
        called, scores, failed = (str(Path(folder) / name) for name in ("called", "scores", "failed"))
        spark.range(USERS).transform(step).write.parquet(called)
        spark.read.parquet(called).where("error IS NULL").drop("error", "attempts").write.parquet(scores)
        spark.read.parquet(called).where("error IS NOT NULL").write.parquet(failed)

        good, bad = spark.read.parquet(scores), spark.read.parquet(failed)
        assert not good.join(bad, "id").count()
        print(f"{good.count() + bad.count()} users: {good.count()} with a score, {bad.count()} failed")
        print(bad.where("error LIKE '%500%'").take(1)[0].error)
    seen = figures.get
    print(f"{seen['calls']} calls, {seen['throttled']} answers of 429, {seen['failed']} failed")


if __name__ == "__main__":
    main()
