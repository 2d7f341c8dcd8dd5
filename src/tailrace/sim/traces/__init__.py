"""Recorded runs: ``run_trace`` reads them, ``calibration`` measures them, ``playback`` simulates them again."""
