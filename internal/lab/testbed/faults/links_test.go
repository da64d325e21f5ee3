//go:build links

package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// Every quick row is kept within its bound, and leaves nothing behind.
func TestQuickRows(t *testing.T) {
	built := build(t)
	rows, err := (&Options{Quick: true}).Select()
	require.NoError(t, err)
	for _, row := range rows {
		t.Run(row.ID, func(t *testing.T) {
			systest.Undisturbed(t, func() string {
				var text bytes.Buffer
				_, err := Run(t.Context(), Options{Only: []string{row.ID}, Slack: 3 * time.Second, Programs: built, Text: &text})
				requireNoBed(t)
				if err != nil {
					return text.String() + err.Error()
				}
				return ""
			})
		})
	}
}

// A row with a wrong promise is found out, for each kind of promise.
func TestABrokenRowIsFoundOut(t *testing.T) {
	built := build(t)
	saved := All
	defer func() { All = saved }()
	var wants []string
	broken := func(want string, change func(*Row)) {
		r := saved[slices.IndexFunc(saved, func(r Row) bool { return r.ID == "shm/killed" })]
		r.ID = fmt.Sprint("shm/broken-", len(wants))
		change(&r)
		wants, All = append(wants, want), append(All, r)
	}
	All = nil
	broken("rank 0 failed: ", func(r *Row) { r.Ends, r.Says = Succeeds, nil })
	broken(`does not say "rank 3 is lost"`, func(r *Row) { r.Says = []string{"rank 3 is lost"} })
	broken("ranks [2] have not been told", func(r *Row) { r.Fails = nil })
	broken(`no rank warned of "a flood"`, func(r *Row) { r.Warns = []string{"a flood"} })
	broken("s, and not at most 1ns", func(r *Row) { r.Bound = Bound{Plus: 1} })
	broken("ranks [0 1 3] have not been told", func(r *Row) { r.job.during = lasts(0) })
	broken("it could not be tried: ",
		func(r *Row) { r.job.during = link(func(*Scene) string { return "nowhere" }, false) })
	broken("rank 0 failed: ", func(r *Row) { r.Ends, r.Says = Succeeds, nil })
	systest.Undisturbed(t, func() string {
		var out bytes.Buffer
		outcomes, err := Run(t.Context(), Options{Programs: built, JSON: &out, Patience: 2 * time.Second})
		require.ErrorIs(t, err, ErrBroken)
		require.Len(t, outcomes, len(wants))
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		require.Len(t, lines, 1+len(wants), "the machine and the trials")
		requireNoBed(t)
		for i, want := range wants {
			require.ErrorContains(t, err, All[i].ID)
			var read Outcome
			require.NoError(t, json.Unmarshal([]byte(lines[1+i]), &read))
			require.False(t, read.Kept)
			if why := strings.Join(read.Why, "; "); !strings.Contains(why, want) {
				return fmt.Sprintf("%s: %s: want %q", All[i].ID, why, want)
			}
		}
		return ""
	})
}
