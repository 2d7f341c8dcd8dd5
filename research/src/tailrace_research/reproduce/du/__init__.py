"""Du and Gupta (DCC 2016), and Du's thesis: hedging by timeout, shared queues, balancing by latency."""
