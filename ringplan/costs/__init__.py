"""Formulas: numbers or columns in, numbers or columns out. No defaults, no specs, no files."""
