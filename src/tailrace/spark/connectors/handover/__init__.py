"""A handover: the folder through which a streaming query hands its rows to a run, micro-batch by micro-batch."""
