"""Seeded calls of the loss with right and hostile arguments, judged by the float64 reference: python -m tests.fuzz."""
