"""Writes vectors.json: what is derived from some secrets.

HKDF-SHA256 is of Python's own hmac, Ed25519 of the package cryptography.

python internal/transport/identity/testdata/vectors.py > internal/transport/identity/testdata/vectors.json
"""

import hashlib
import hmac
import json

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


def hkdf(secret: str, purpose: str, salt: bytes = b"") -> bytes:
    """RFC 5869, one block of output."""
    extracted = hmac.digest(salt or bytes(32), secret.encode(), hashlib.sha256)
    return hmac.digest(extracted, f"torch-mcast {purpose}".encode() + b"\x01", hashlib.sha256)


def vector(secret: str, salt: bytes) -> dict[str, str]:
    """Return what a secret gives with a salt."""
    private = Ed25519PrivateKey.from_private_bytes(hkdf(secret, "identity"))
    return {
        "secret": secret,
        "salt": salt.hex(),
        "public": private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex(),
        "name": hkdf(secret, "name")[:8].hex(),
        "datagrams": hkdf(secret, "datagrams", salt).hex(),
        "encrypted datagrams": hkdf(secret, "encrypted datagrams", salt).hex(),
    }


print(
    json.dumps(
        [vector("a secret of many letters", b""), vector("0123456789abcdef" * 4, bytes(range(28)))], indent=1
    )
)
