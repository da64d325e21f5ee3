"""Writes vectors.json: datagrams as OpenSSL's AES-GCM seals them (package cryptography), and their CRC32C.

python internal/transport/seal/testdata/vectors.py > internal/transport/seal/testdata/vectors.json
"""

import hashlib
import json
import struct

from cryptography.hazmat.primitives.ciphers.aead import AESGCM


def some(name: str, n: int) -> bytes:
    return hashlib.shake_128(name.encode()).digest(n)


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def vector(sender: int, counter: int, number: int, header: bytes, payload: bytes) -> dict:
    key = some("key", 32)
    gcm, nonce = AESGCM(key), struct.pack(">IQ", sender, counter)
    covered = header + struct.pack(">Q", number)
    encrypted = gcm.encrypt(nonce, payload, covered)
    return {
        "key": key.hex(),
        "sender": sender,
        "counter": f"{counter:016x}",
        "number": f"{number:016x}",
        "header": header.hex(),
        "payload": payload.hex(),
        "tag": gcm.encrypt(nonce, covered, payload)[-16:].hex(),
        "encrypted": encrypted[:-16].hex(),
        "encrypted_tag": encrypted[-16:].hex(),
        "crc32c": f"{crc32c(header + payload):08x}",
    }


print(
    json.dumps(
        [
            vector(0, 0, 0, some("header", 32), b""),
            vector(1, 1, 2, some("header", 32), b"123456789"),
            vector(7, 2**32 + 5, 2**32 - 1, some("other header", 32), some("payload", 100)),
            vector(2**32 - 1, 2**64 - 2, 2**40 + 3, some("short", 8), some("chunk", 1408)),
        ],
        indent=1,
    )
)
