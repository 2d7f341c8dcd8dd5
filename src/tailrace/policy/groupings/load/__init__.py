"""Parts of load-aware groupings: reports of executed tuples, tuples in flight, shares, estimates of cost."""
