"""Policies on virtual time: what would they do to a workload?"""
