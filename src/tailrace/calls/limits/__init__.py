"""The state of a limit: on the driver, which grants units and permits, and in a client, which uses them."""
