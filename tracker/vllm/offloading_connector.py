"""The connector under upstream's name, for `--kv-offloading-size` (docs/vllm.md).

vLLM names the connector `OffloadingConnector` itself when that option is used; with
`"kv_connector_module_path": "tracker.vllm.offloading_connector"` it takes this one.
"""

from tracker.vllm.connector import KvledgerConnector as OffloadingConnector

__all__ = ["OffloadingConnector"]
