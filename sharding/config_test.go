package sharding

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/priorityqueue"
)

// A mistake is an error that says what to write.
func TestMistakes(t *testing.T) {
	join := func(store Store, c Config) func() error {
		return func() error {
			c.Group = "g"
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := Join(ctx, store, c)
			return err
		}
	}
	panics := func(f func()) func() error {
		return func() (err error) {
			defer func() { err = fmt.Errorf("panic: %v", recover()) }()
			f()
			return nil
		}
	}
	config := QueueConfig[string]{Keys: noKeys[string]}
	for want, f := range map[string]func() error{
		"Config.Lease is 15ns, want a positive time with a unit": join(Memory(), Config{Lease: 15}),
		"Config.Lease is -15s, want a positive time": join(Memory(),
			Config{Lease: -15 * time.Second}),
		"Config.Margin is 2ns, want a positive time with a unit": join(Memory(), Config{Margin: 2}),
		"Config.HandoverTimeout is 10ns, want a positive time with a unit": join(Memory(),
			Config{HandoverTimeout: 10}),
		"Config.Margin is 8s, want at most half of the lease of 15s": join(Memory(),
			Config{Margin: 8 * time.Second}),
		"the store is nil": join(nil, Config{}),
		"panic: sharding: the member is nil: make the queue after Join": panics(func() {
			NewQueue(newRoot(), nil,
				config)
		}),
		"panic: sharding: the member is nil": panics(func() {
			NewOptsQueue(priorityqueue.New(priorityqueue.Config[string]{}), nil, config,
				func(int) (o priorityqueue.AddOpts) { return o })
		}),
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
