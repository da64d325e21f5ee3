package examine

import (
	"errors"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/doctor"
	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
)

// variables reads the environment.
func (e *examination) variables() {
	s := doctor.Settings{Set: make(map[string]string), Unknown: config.Unknown(e.Environ)}
	all := make(map[string]string)
	for _, entry := range e.Environ {
		name, value, _ := strings.Cut(entry, "=")
		all[name] = value
		concerns, secret := doctor.Variable(name)
		switch {
		case value == "" || !concerns:
		case secret || len(config.Unknown([]string{entry})) > 0: // a name that is misspelled may be a secret's
			s.Set[name] = "(set)"
		default:
			s.Set[name] = value
		}
	}
	var err error
	e.settings, err = config.Load(func(name string) (string, bool) {
		value, ok := all[name]
		return value, ok
	}, nil)
	switch {
	case errors.Is(err, config.ErrInStore):
		s.Secret = config.InStore
	case err != nil:
		s.Bad = strings.ReplaceAll(err.Error(), "\n", "; ")
		e.settings = config.Default()
		e.settings.Interface = all["MCAST_IFACE"]
	default:
		if s.Secret, err = digest(e.settings.Secret); err != nil {
			s.Bad = err.Error()
		}
	}
	e.Settings = s
}

// digest returns what tells a secret apart from others, and does not give it away.
func digest(secret string) (string, error) {
	id, err := identity.New(secret)
	if err != nil {
		return "", err
	}
	return id.Name()
}
