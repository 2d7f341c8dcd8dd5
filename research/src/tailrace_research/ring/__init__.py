"""Tools that stop and kill processes at the engine's rings."""
