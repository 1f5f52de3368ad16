package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

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
		if r.InQueue != nil {
			parts = append(parts, fmt.Sprintf("%d in the queue", *r.InQueue))
		}
		if r.GivenUp != nil {
			parts = append(parts, fmt.Sprintf("%d given up", *r.GivenUp))
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
	change func(a *redisqueue.Admin, ctx context.Context, keys ...string) ([]string, error)
	count  func(r *report) **int // of these keys; nil until the step is made
}

func inQueue(r *report) **int { return &r.InQueue }
func givenUp(r *report) **int { return &r.GivenUp }

// change makes all steps for keys or, with -all, for those that were given up.
func change(verb string, steps ...step) func(c *command, ctx context.Context, keys []string) error {
	return func(c *command, ctx context.Context, keys []string) error {
		var r report
		if c.all {
			for k, err := range c.queue.Keys(ctx, redisqueue.ListGivenUp, 0) {
				if err != nil {
					return c.print(verb, r, err)
				}
				keys = append(keys, k.Key)
			}
		}
		found := make(map[string]bool)
		for _, s := range steps {
			changed, err := s.change(c.queue, ctx, keys...)
			n := len(changed)
			*s.count(&r) = &n
			if err != nil {
				return c.print(verb, r, err)
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
		return c.print(verb, r, nil)
	}
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
