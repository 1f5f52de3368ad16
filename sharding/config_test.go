package sharding

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
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
	queue := func(m *Member, c QueueConfig[string]) func() error {
		return func() error {
			_, err := NewQueue(newRoot(), m, c)
			return err
		}
	}
	anything := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[any]())
	config := QueueConfig[string]{Keys: noKeys[string]}
	for want, f := range map[string]func() error{
		"Config.Lease is 15ns, want up to 24h0m0s with a unit": join(Memory(), Config{Lease: 15}),
		"Config.Lease is 25h0m0s, want up to 24h0m0s":          join(Memory(), Config{Lease: 25 * time.Hour}),
		"HandoverTimeout is 10ns, want up to 24h":              join(Memory(), Config{HandoverTimeout: 10}),
		"HandoverTimeout is 25h0m0s, want up to 24h":           join(Memory(), Config{HandoverTimeout: 25 * time.Hour}),
		"the store is nil": join(nil, Config{}),
		"the member is nil: make the queue after Join": queue(nil, config),
		"QueueConfig.Keys is required":                 queue(holdingAll(1), QueueConfig[string]{}),
		"QueueConfig.Hash needs a HashVersion": queue(holdingAll(1),
			QueueConfig[string]{Keys: noKeys[string], Hash: HashString}),
		"the queue below is nil": func() error {
			_, err := NewQueue(nil, holdingAll(1), config)
			return err
		},
		"need a QueueConfig.Hash": func() error {
			_, err := NewQueue(anything, holdingAll(1), QueueConfig[any]{Keys: noKeys[any]})
			return err
		},
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
