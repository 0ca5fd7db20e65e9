"""The tracker of a KV-offloading scheduler: what it holds, logs and publishes."""
