"""What makes a run exact: ledgers, acks, memberships, recovery, and the messages about them."""
