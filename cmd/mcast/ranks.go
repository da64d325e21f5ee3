package main

import (
	"errors"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/live"
	"github.com/torch-mcast/torch-mcast/internal/watch"
)

// rankFlags choose among the ranks that publish.
type rankFlags struct {
	watchFlags
	User  string `placeholder:"NAME" help:"Only ranks of this user, by name or number."`
	OfRun string `name:"run" placeholder:"NAME" help:"Only ranks of this run, as torchrun or Slurm names it."`
	Group string `placeholder:"NAME" help:"Only ranks of groups with a name that begins so."`
	PID   int    `name:"pid" placeholder:"N" help:"Only groups of this process."`
}

// AfterApply turns a user into the directory of that user.
func (f *rankFlags) AfterApply() error {
	switch {
	case f.User == "":
		return nil
	case f.Directory != "":
		return config.Mistakef("--user and --directory are not allowed together: a user has one directory")
	}
	uid, err := strconv.Atoi(f.User)
	if err != nil {
		u, err := user.Lookup(f.User)
		if err != nil {
			return config.Mistakef("--user=%s: %w", f.User, err)
		}
		if uid, err = strconv.Atoi(u.Uid); err != nil {
			return config.Mistakef("--user=%s has the number %q, which is none", f.User, u.Uid)
		}
	}
	f.Directory = live.Directory(uid)
	return nil
}

// among returns what looks for the chosen ranks alone.
func (f *rankFlags) among(look func() ([]watch.Rank, []error)) func() ([]watch.Rank, []error) {
	return func() ([]watch.Rank, []error) {
		all, errs := look()
		ofPID := map[string]bool{}
		for i := range all {
			if all[i].PID == f.PID {
				ofPID[all[i].Group] = true
			}
		}
		var chosen []watch.Rank
		for i := range all {
			r := &all[i]
			if (f.OfRun == "" || r.Run == f.OfRun) && strings.HasPrefix(r.Group, f.Group) && (f.PID == 0 || ofPID[r.Group]) {
				chosen = append(chosen, *r)
			}
		}
		has := func(ranks []watch.Rank, group string) bool {
			return slices.ContainsFunc(ranks, func(r watch.Rank) bool { return r.Group == group })
		}
		errs = slices.DeleteFunc(errs, func(err error) bool { // who is silent in a group that was not chosen
			var silent *watch.SilentError
			return errors.As(err, &silent) && has(all, silent.Group) && !has(chosen, silent.Group)
		})
		return chosen, errs
	}
}
