"""Tests against real vLLM engines that run on a CPU."""
