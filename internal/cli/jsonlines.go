package cli

import (
	"encoding/json"
	"io"
)

// PrintJSON prints each as a JSON object on a line.
func PrintJSON[T any](w io.Writer, all []T) error {
	out := json.NewEncoder(w)
	for i := range all {
		if err := out.Encode(&all[i]); err != nil {
			return err
		}
	}
	return nil
}
