package hostnet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/owntime"
)

// TestWhenThere: what passes is waited for and said once; what does not is an error at once; and the
// end of time names both.
func TestWhenThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		log := slog.New(slog.NewTextHandler(&said, nil))
		short := fmt.Errorf("socket: %w", unix.EMFILE)
		there := time.Now().Add(time.Hour)
		open := func() (int, error) {
			if time.Now().Before(there) {
				return 0, short
			}
			return 7, nil
		}
		v, err := WhenThere(t.Context(), log, "a test", open)
		require.NoError(t, err)
		require.Equal(t, 7, v)
		require.Less(t, time.Since(there), time.Second) //nolint:forbidigo // in a bubble
		require.Equal(t, 1, strings.Count(said.String(), "waiting until it is there"), said.String())
		require.Contains(t, said.String(), `for="a test" error="socket: too many open files"`)

		wrong := errors.New("wrong")
		_, err = WhenThere(t.Context(), log, "a test", func() (int, error) { return 0, wrong })
		require.Equal(t, wrong, err)

		there = time.Now().Add(time.Hour)
		// in a bubble
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, //nolint:forbidigo // in a bubble
			&owntime.TimeoutError{Setting: "MCAST_JOIN_TIMEOUT", After: time.Minute})
		defer cancel()
		_, err = WhenThere(ctx, log, "a test", open)
		require.ErrorIs(t, err, unix.EMFILE)
		require.EqualError(t, err, "MCAST_JOIN_TIMEOUT of 1m0s is over: socket: too many open files")
	})
}
