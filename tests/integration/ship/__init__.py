"""Shipping on real files, whole and with everything that can go wrong."""
