"""The production core among simulated processes that fail: is anything lost?"""
