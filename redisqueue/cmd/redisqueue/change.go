package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/redisqueue"
)

// report is what a command has done, as JSON has it. What is null is not known, or not about this command.
type report struct {
	Complete bool   `json:"complete"` // if not, the numbers are what is known to be done; it may be more
	InQueue  *int   `json:"in_queue"` // what rm has removed from there, or add and release put there
	GivenUp  *int   `json:"given_up"`
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
		}{{r.InQueue, "%d in the queue"}, {r.GivenUp, "%d given up"}} {
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
	reported **int // the field of the report, nil until the step is made
}

func (c *command) retry(ctx context.Context, keys []string) error {
	var r report
	return c.change(ctx, "queued again", &r, keys, step{c.queue.RetryGivenUp, &r.GivenUp})
}

func (c *command) drop(ctx context.Context, keys []string) error {
	var r report
	return c.change(ctx, "dropped", &r, keys, step{c.queue.ForgetGivenUp, &r.GivenUp})
}

func (c *command) remove(ctx context.Context, keys []string) error {
	var r report
	// Remove comes last: it also forgets that a key was given up, and does not say so.
	return c.change(ctx, "removed", &r, keys,
		step{c.queue.ForgetGivenUp, &r.GivenUp}, step{c.queue.Remove, &r.InQueue})
}

func (c *command) release(ctx context.Context, keys []string) error {
	var r report
	return c.change(ctx, "released", &r, keys, step{c.queue.Release, &r.InQueue})
}

// change makes all steps for keys or, with -all, for those that were given up.
func (c *command) change(ctx context.Context, verb string, r *report, keys []string, steps ...step) error {
	if c.all {
		for k, err := range c.queue.Keys(ctx, redisqueue.ListGivenUp, 0) {
			if err != nil {
				return c.print(verb, *r, err)
			}
			keys = append(keys, k.Key)
		}
	}
	found := make(map[string]bool)
	for _, s := range steps {
		changed, err := s.change(ctx, keys...)
		n := len(changed)
		*s.reported = &n
		if err != nil {
			return c.print(verb, *r, err)
		}
		for _, key := range changed {
			found[key] = true
		}
	}
	for _, key := range keys {
		if !found[key] && !c.all {
			r.Absent = append(r.Absent, text(key))
			found[key] = true
		}
	}
	return c.print(verb, *r, nil)
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
