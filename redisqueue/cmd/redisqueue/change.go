package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/keyedqueue/workqueue/operate"
)

// report is what a command has done, as JSON has it. What is null is not known, or not about this command.
type report struct {
	Complete bool   `json:"complete"` // if not, the numbers are what is known to be done; it may be more
	InQueue  *int   `json:"in_queue"` // what rm has removed from there, or add and release put there
	GivenUp  *int   `json:"given_up"`
	SetAside *int   `json:"set_aside"`
	Absent   []text `json:"absent"`
}

// print prints what was done, also if err says that this is not all. Keys that were not there are an error.
func (c *command) print(verb string, r report, err error) error {
	if r.Complete = err == nil; r.Complete && r.Absent == nil {
		r.Absent = []text{}
	}
	if c.json {
		err = errors.Join(err, printJSON(c.out, r))
	} else {
		var parts []string
		for _, part := range []struct {
			n      *int
			format string
		}{{r.InQueue, "%d in the queue"}, {r.GivenUp, "%d given up"}, {r.SetAside, "%d set aside"}} {
			if part.n != nil {
				parts = append(parts, fmt.Sprintf(part.format, *part.n))
			}
		}
		if !r.Complete {
			verb += " at least"
		}
		if len(parts) > 0 {
			fmt.Fprintf(c.out, "%s: %s\n", verb, strings.Join(parts, ", "))
		}
	}
	if err != nil || len(r.Absent) == 0 {
		return err
	}
	err = fmt.Errorf("%w: %s", errAbsent, quoted(string(r.Absent[0])))
	if more := len(r.Absent) - 1; more > 0 {
		err = fmt.Errorf("%w, and %d more", err, more)
	}
	return err
}

// step changes keys in one of the places where they may be.
type step struct {
	// change returns those that were there, also with an error.
	change   func(ctx context.Context, keys ...string) ([]string, error)
	reported **int  // the field of the report, nil until the step is made
	list     string // what -all means
}

func (c *command) retry(ctx context.Context, keys []string) error {
	var r report
	return c.change(ctx, "queued again", &r, keys,
		step{c.queue.RetryGivenUp, &r.GivenUp, "givenup"},
		step{c.queue.RequeueSetAside, &r.SetAside, "aside"})
}

func (c *command) drop(ctx context.Context, keys []string) error {
	var r report
	return c.change(ctx, "dropped", &r, keys,
		step{c.queue.ForgetGivenUp, &r.GivenUp, "givenup"}, step{c.queue.DropSetAside, &r.SetAside, "aside"})
}

func (c *command) remove(ctx context.Context, keys []string) error {
	var r report
	// Remove comes last: it also forgets that a key was given up, and does not say so.
	return c.change(ctx, "removed", &r, keys, step{c.queue.ForgetGivenUp, &r.GivenUp, ""},
		step{c.queue.DropSetAside, &r.SetAside, ""}, step{c.queue.Remove, &r.InQueue, ""})
}

func (c *command) release(ctx context.Context, keys []string) error {
	var r report
	return c.change(ctx, "released", &r, keys, step{c.queue.Release, &r.InQueue, ""})
}

// change makes all steps. args are keys or, with -all, the lists that are meant; none means all of these.
func (c *command) change(ctx context.Context, verb string, r *report, args []string, steps ...step) error {
	found := make(map[string]bool)
	for _, s := range steps {
		if c.all && len(args) > 0 && !slices.Contains(args, s.list) {
			continue
		}
		n, keys, err := 0, args, error(nil)
		*s.reported = &n
		if c.all {
			keys, err = c.keysOf(ctx, s.list)
		}
		if err == nil {
			keys, err = s.change(ctx, keys...)
			n = len(keys)
		}
		if err != nil {
			return c.print(verb, *r, err)
		}
		for _, key := range keys {
			found[key] = true
		}
	}
	for _, key := range args {
		if !found[key] && !c.all {
			r.Absent = append(r.Absent, text(key))
			found[key] = true
		}
	}
	return c.print(verb, *r, nil)
}

// keysOf returns all keys of a list.
func (c *command) keysOf(ctx context.Context, list string) (keys []string, err error) {
	c.limit = 0
	err = c.each(ctx, list, func(r keyRow) error {
		keys = append(keys, string(r.Key))
		return nil
	})
	return keys, err
}

func (c *command) pause(ctx context.Context, paused bool) error {
	if paused {
		return c.queue.Pause(ctx, cmp.Or(c.pauseFor, operate.UntilResumed))
	}
	return c.queue.Resume(ctx)
}

func (c *command) add(ctx context.Context, keys []string) error {
	// The hook does not count here: a full server answers, and takes no adds.
	ctx, cancel := context.WithTimeoutCause(ctx, c.server.timeout, c.server.silent())
	defer cancel()
	added, err := c.queue.Add(ctx, c.after, keys...)
	if errors.Is(err, context.DeadlineExceeded) {
		err = context.Cause(ctx)
	}
	return c.print("added", report{InQueue: &added}, err)
}
