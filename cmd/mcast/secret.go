package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
)

// secretCommand prints a new secret, or the certificate and key that are derived from one.
type secretCommand struct {
	Metrics bool `help:"Print, of the secret that MCAST_SECRET (or MCAST_SECRET_FILE) is, the certificate and key by which Prometheus reads metrics."`
	JSON    bool `name:"json" help:"Print a JSON object: secret, or pem."`
}

// Run prints a secret that did not exist before, or those.
func (c *secretCommand) Run() error {
	if c.Metrics {
		return c.printPages()
	}
	return c.print("secret", identity.NewSecret()+"\n")
}

// print prints a text, or an object in which it has a name.
func (c *secretCommand) print(name, text string) error {
	if c.JSON {
		return json.NewEncoder(os.Stdout).Encode(map[string]string{name: strings.TrimSuffix(text, "\n")})
	}
	_, err := fmt.Print(text)
	return err
}

func (c *secretCommand) printPages() error {
	secret, err := config.SecretOf(os.LookupEnv)
	if err != nil {
		return err
	}
	if secret == "" {
		return config.Mistakef("--metrics: neither MCAST_SECRET nor MCAST_SECRET_FILE is set, and without a secret there " +
			"is nothing to prove: metrics are read by HTTP")
	}
	pages, err := identity.NewPages(secret, 1)
	if err != nil {
		return err
	}
	text, err := pages.PEM()
	if err != nil {
		return err
	}
	return c.print("pem", string(text))
}
