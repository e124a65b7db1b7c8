"""A certificate for one run, made by the program openssl."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from squill.errors import ClusterError
from squill.runtime.spark.pipes.wire import NAME, Certificate

__all__ = ["new_certificate"]

DAYS = 30
"""A run does not take longer."""


def new_certificate() -> Certificate:
    """Return a certificate that signs itself: members trust this one and no other."""
    with tempfile.TemporaryDirectory(prefix="squill-tls-") as name:
        folder = Path(name)  # which only this user can read
        command = [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem"), "-days", str(DAYS),
            "-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}",
        ]  # fmt: skip
        try:
            subprocess.run(command, check=True, capture_output=True)  # noqa: S603  (nothing in it is the user's)
        except (OSError, subprocess.CalledProcessError) as error:
            raise ClusterError(
                f"spark: tls=True needs a certificate, and none can be made here: {error}",
                "install the program openssl where the driver runs.",
            ) from error
        return Certificate((folder / "certificate.pem").read_bytes(), (folder / "key.pem").read_bytes())
