"""Pull: a tuple stays with its sender until a task has room for it. Begin with ``grouping``.

``grouping`` has the protocol between senders and tasks and the sender's side, ``receiver`` the side of a task.
``lone_sender`` has both sides where a single task sends, which needs far fewer messages.
"""
