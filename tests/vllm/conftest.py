"""What every test against a real engine needs: warnings left to those who give them, and the two models."""

import pytest

from tests.vllm.models import Model, write_hybrid, write_llama


def pytest_configure(config: pytest.Config) -> None:
    # vLLM, torch and transformers warn about one another from their import on; none of it is ours to mend.
    config.addinivalue_line("filterwarnings", "ignore")


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return write_llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return write_hybrid(tmp_path_factory.mktemp("hybrid"))
