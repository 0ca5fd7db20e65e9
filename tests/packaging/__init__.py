"""What is shipped: the wheel, what it needs, what it leaves alone."""
