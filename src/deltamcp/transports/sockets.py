"""TLS by certificate files."""

import os
import ssl
from pathlib import Path
from typing import Any, NamedTuple

from deltamcp.errors import ConfigurationError


class TlsFiles(NamedTuple):
    """A certificate, with those of its issuers after it, and its private key; both in PEM."""

    cert: str
    key: str


def check_files(cert: str | os.PathLike[str] | None, key: str | os.PathLike[str] | None) -> TlsFiles | None:
    """Returns the files, of which one may have both parts; None without any.

    Raises:
        ConfigurationError: they cannot be read, or do not belong together.
    """
    if cert is None:
        if key is not None:
            raise ConfigurationError("tls_key needs tls_cert, the file of the certificate that the key belongs to.")
        return None
    files = TlsFiles(os.fspath(cert), os.fspath(cert if key is None else key))
    for path in files:
        try:
            Path(path).open("rb").close()
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be read for TLS: {error.strerror}.") from None
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(*files, password=_refuse_password)
    except ssl.SSLError as error:
        raise ConfigurationError(
            f"{files.cert} and {files.key} must be a certificate and its private key in PEM ({error.reason})."
        ) from None
    return files


def _refuse_password(*_: Any) -> str:
    """OpenSSL would ask for it at the terminal."""
    raise ConfigurationError(
        "The private key for TLS has a password; store it without one, readable by the server only."
    )
