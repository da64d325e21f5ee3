// Package record protects the bytes after a greeting on a TCP connection. An attacker on the path can neither read nor
// change, repeat or leave out any, but can end the connection: nothing says that a stream ends as it should. The stream
// goes in records: a length of 2 bytes, then at most 16 KiB sealed by AES-256-GCM, in TLS's manner (RFC 8446, section
// 5): a nonce is the record's number, over a secret of this direction alone, which is replaced before it has sealed too
// much. The secrets come from the greeting's TLS session.
//
// A Conn is for callers that wait, a Line for callers that poll. The standard library's TLS is for callers that wait
// only; the kernel's TLS is a module that many hosts do not load.
package record

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/coredump"
)

const (
	// SecretSize is the length of a direction's secret, in bytes.
	SecretSize = 32

	maxPlain  = 16 << 10 // bytes of a record before it is sealed
	headSize  = 2
	tagSize   = 16
	maxRecord = headSize + maxPlain + tagSize
	// perKey is how many records a key seals: RFC 8446, section 5.5, allows AES-GCM 2^24.5 of full size.
	perKey = 1 << 24
)

// Secrets are those of the two directions of a connection, SecretSize bytes each.
type Secrets struct{ Out, In []byte }

// half seals or opens the records of one direction.
type half struct {
	secret []byte
	aead   cipher.AEAD
	iv     [12]byte
	number uint64 // of the next record of this key
	nonce  [12]byte
}

func newHalf(secret []byte) (half, error) {
	if len(secret) != SecretSize {
		return half{}, fmt.Errorf("record: a secret of %d bytes: want %d", len(secret), SecretSize)
	}
	h := half{secret: secret}
	return h, h.rekey()
}

// rekey takes the key of the present secret.
func (h *half) rekey() error {
	key, err := hkdf.Expand(sha256.New, h.secret, "torch-mcast record key", 32)
	if err != nil {
		return err
	}
	iv, err := hkdf.Expand(sha256.New, h.secret, "torch-mcast record iv", len(h.iv))
	if err != nil {
		return err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return err
	}
	copy(h.iv[:], iv)
	h.number = 0
	h.aead, err = cipher.NewGCM(block)
	coredump.OmitHeap()
	return err
}

// next returns the nonce of the next record, of another secret where the present one has done its share.
func (h *half) next() ([]byte, error) {
	if h.number == perKey {
		secret, err := hkdf.Expand(sha256.New, h.secret, "torch-mcast record update", SecretSize)
		if err != nil {
			return nil, err
		}
		h.secret = secret
		if err := h.rekey(); err != nil {
			return nil, err
		}
	}
	h.nonce = h.iv
	binary.BigEndian.PutUint64(h.nonce[4:], binary.BigEndian.Uint64(h.iv[4:])^h.number)
	h.number++
	return h.nonce[:], nil
}

// seal appends a record of at most maxPlain bytes to dst.
func (h *half) seal(dst, plain []byte) ([]byte, error) {
	nonce, err := h.next()
	if err != nil {
		return dst, err
	}
	start := len(dst)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(plain)+tagSize))
	return h.aead.Seal(dst, nonce, plain, dst[start:start+headSize]), nil
}

// open appends the content of a whole record to dst.
func (h *half) open(dst, b []byte) ([]byte, error) {
	nonce, err := h.next()
	if err != nil {
		return nil, err
	}
	plain, err := h.aead.Open(dst, nonce, b[headSize:], b[:headSize])
	if err != nil {
		return nil, errForged
	}
	return plain, nil
}

// length returns the length of the first of some records, and whether all its bytes are there.
func length(b []byte) (n int, whole bool, err error) {
	if len(b) < headSize {
		return 0, false, nil
	}
	n = headSize + int(binary.BigEndian.Uint16(b))
	if n <= headSize+tagSize || n > maxRecord {
		return 0, false, errForged
	}
	return n, len(b) >= n, nil
}
