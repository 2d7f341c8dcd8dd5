"""Hedges at work in a source task, and how they are cancelled.

``controller`` asks the hedger of a source task (``tailrace.policy.hedging``) which roots to hedge now; the source task
emits them. A hedge is an emission of the same root with a number and acknowledgements of its own. ``races`` decides
which emission of a root wins, the first to complete, and lists the others for cancelling. The worker sends that list to
all workers, where ``cancelled`` holds it: tasks look into it before they run a bundle, and throw cancelled ones away.
"""
