"""The protocol that makes a run exactly-once: ledgers, acks, memberships, recovery, and the messages about them."""
