"""Stores as earlier versions wrote them, with what is in them; made by `make.py`."""
