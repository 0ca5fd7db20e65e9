"""The durable log of KV-cache offloading, its views, and what is built on them."""
