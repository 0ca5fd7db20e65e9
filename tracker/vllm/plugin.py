"""The plug-in entry point: vLLM calls it in each of its processes at start; changes with how vLLM registers connectors.

Light to import, safe to call again, and it never raises: what is wrong is said when the connector is built.
"""

NAME = "KvledgerConnector"


def register() -> None:
    """Make the connector known to vLLM by its name."""
    try:
        from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory  # noqa: PLC0415
    except ImportError:
        return
    if NAME in KVConnectorFactory._registry:
        return
    KVConnectorFactory.register_connector(NAME, "tracker.vllm.connector", NAME)
