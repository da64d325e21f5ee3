package fabrics

import (
	"encoding/binary"

	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
	"github.com/torch-mcast/torch-mcast/internal/transport/seal"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// seals seal the datagrams of a group and its probes of paths; nil: nothing does.
type seals struct{ datagrams, probes *seal.Sealer }

// fill sets the seals of datagrams and of probes of paths. They are made once and stay the same when a fabric is opened
// again: they count datagrams, and the count must not start anew. Columns have keys of their own for datagrams, since
// each counts its ranks from 0; probes go between all ranks.
func (s *seals) fill(a *team.Plan, o *udp.Options, id *identity.Identity) error {
	if s.datagrams == nil && id == nil && a.Settings.Checksum == "crc32c" {
		s.datagrams = seal.New(seal.Checksum, nil, 0)
	}
	if s.datagrams == nil && id != nil {
		kind, purpose := seal.Tags, "datagrams"
		if a.Settings.Encrypt {
			kind, purpose = seal.Encryption, "encrypted datagrams"
		}
		sealer, err := newSealer(a, kind, id, purpose, a.Column.Ranks[0], a.Column.Own)
		if err != nil {
			return err
		}
		probes, err := newSealer(a, seal.Tags, id, "probes", 0, a.Rank)
		if err != nil {
			return err
		}
		s.datagrams, s.probes = sealer, probes
	}
	o.Seals, o.Probes = s.datagrams, s.probes
	return nil
}

// newSealer makes a sealer with a key that some ranks share; first is the lowest of them, and number is this rank's.
// The key is derived from random parts of every rank of the group, so that recorded datagrams of another group are not
// accepted, and no key is used twice.
func newSealer(
	a *team.Plan, kind seal.Kind, id *identity.Identity, purpose string, first, number int,
) (*seal.Sealer, error) {
	salt := binary.BigEndian.AppendUint64(nil, a.Job)
	salt = binary.BigEndian.AppendUint32(salt, uint32(first))
	for _, key := range a.Keys {
		salt = binary.BigEndian.AppendUint64(salt, key)
	}
	key, err := id.Derive(purpose, salt)
	if err != nil {
		return nil, err
	}
	return seal.New(kind, key, uint32(number)), nil
}
