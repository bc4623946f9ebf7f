"""What servers listen with: sockets, the descriptors of a process, and certificates."""

import errno
import os
import socket
import ssl
import sys
from pathlib import Path
from typing import Any, NamedTuple

from deltamcp.errors import ConfigurationError


def allowed_connections(wanted: int, share: float, each: int = 1) -> int:
    """Returns how many connections the process can have; it raises its own limit on descriptors as far as it may.

    Args:
        share: the part of the descriptors that these connections may have, so that accepting one never fails.
        each: the descriptors of one connection.
    """
    if sys.platform == "win32":
        return wanted
    import resource

    descriptors, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return wanted
    needed = int(wanted * each / share) + 1
    if descriptors < needed:
        descriptors = needed if most == resource.RLIM_INFINITY else min(needed, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, most))
    return min(wanted, int(descriptors * share / each))


def bind_sockets(host: str, port: int, reuse_port: bool = False) -> list[socket.socket]:
    """Binds a socket to each address of a host; port 0 is a free port, the same for all of them.

    Args:
        reuse_port: whether other processes of this user may listen there, too (SO_REUSEPORT).

    Raises:
        ConfigurationError: the server cannot listen at this address.
    """
    sockets: list[socket.socket] = []
    refusal = OSError(errno.EADDRNOTAVAIL, "it has no address")
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            try:
                sockets.append(_bind_socket(family, kind, protocol, (address[0], port, *address[2:]), reuse_port))
            except OSError as error:
                if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                    raise
                refusal = error  # a machine without IPv6 may still call ::1 localhost
            else:
                port = sockets[0].getsockname()[1]
        if not sockets:
            raise refusal
    except OSError as error:
        for bound in sockets:
            bound.close()
        raise listen_error(host, port, error) from None
    return sockets


def _bind_socket(family: int, kind: int, protocol: int, address: Any, reuse_port: bool) -> socket.socket:
    bound = socket.socket(family, kind, protocol)
    try:
        if sys.platform != "win32":  # where it would let two servers share the port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


def listen_error(host: str, port: int, error: OSError) -> ConfigurationError:
    return ConfigurationError(f"Cannot listen at {host}:{port}: {error.strerror}; name another.")


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
