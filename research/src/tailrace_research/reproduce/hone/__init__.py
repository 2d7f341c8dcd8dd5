"""Hone (TPDS 2021): largest backlog first."""
