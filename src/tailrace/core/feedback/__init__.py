"""Load-aware edges at work: feedback senders, feedback receivers, and what feedback may cost."""
