"""The commands that run a part of the service each."""

import socket
from pathlib import Path


def test_an_api_on_a_used_port_says_which_option_takes_another(command, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        result = command("api", "--port", port, "--data-dir", tmp_path / "data")
    assert result.exit_code == 1
    assert result.stderr == (
        f"Error: port {port} on 127.0.0.1 is in use; give another with --port\n"
    )
    assert not (tmp_path / "data").exists()
