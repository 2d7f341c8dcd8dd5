"""TurboStream (ICDCS 2018): placement of tasks on nodes."""
