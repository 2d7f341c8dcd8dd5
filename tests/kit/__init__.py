"""What tests share. ``pythonpath`` in ``pyproject.toml`` makes it importable as ``kit``, in worker processes too.

- ``runs``: topologies on real worker processes: small functions, rows read back, kills, drivers as scripts.
- ``tasks``: a small plan, and tasks of the core assembled from it, without a worker.
- ``neighbours``: what surrounds a task in a worker, without a worker: no other tasks, runners that the test steps.
- ``counting_server``: an HTTP service in a process of its own, which counts its requests.
- ``http_calls``: calls of that service: a class for an operator, and a process that calls as a task of a query does.
- ``limits``: a limit and its clients on virtual time, without processes.
- ``connectors``: a source and a sink for topologies that never run.
- ``spark``: Spark sessions and clusters, and the processes behind them.
- ``data_sources``: PySpark data sources that count and remember.
- ``streams``: inputs of streaming queries that grow file by file, and what was handed over.
- ``reference``: the tables of ``docs/reference/``, made from the code.
- ``examples``: examples in docstrings, run.
- ``pages``: the documents, and the code in them.
- ``network``: free ports, relays, sniffers, and drivers on a cluster in a box.
- ``staged``: hedging rules and an auditor for the simulator.
"""
