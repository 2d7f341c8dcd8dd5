"""Makes calls: attempts, time limits, retries and hedges, and the clients of limits and journals."""
