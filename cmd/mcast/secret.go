package main

import (
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
)

type secretCommand struct{}

// Run prints a secret that did not exist before.
func (secretCommand) Run() error {
	_, err := fmt.Println(identity.NewSecret())
	return err
}
