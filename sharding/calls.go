package sharding

import (
	"context"
	"fmt"
	"time"
)

func (m *Member) recordName(id string) string { return m.config.Group + "-member-" + id }
func (m *Member) tableName() string           { return m.config.Group + "-table" }

// now is the time since the member's start by its own clock.
func (m *Member) now() time.Duration { return m.config.Clock.Since(m.start) }

// margin makes up for clocks of different speed. Keys have one holder as long as the slowest clock shows more
// than 5/6 of a lease while the fastest shows a whole one. chrony, while it corrects a clock, makes it 8.3 %
// wrong at most.
func (m *Member) margin() time.Duration { return m.config.Lease / 6 }

// retryDelay is the pause after a failed call, and callTimeout how long a call may take.
func (m *Member) retryDelay() time.Duration  { return m.config.Lease / 15 }
func (m *Member) callTimeout() time.Duration { return m.config.Lease / 5 }

// call calls f for callTimeout at most, by the member's clock.
func (m *Member) call(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := m.config.Clock.NewTimer(m.callTimeout())
	defer timer.Stop()
	go func() {
		select {
		case <-timer.C():
			cancel(context.DeadlineExceeded)
		case <-ctx.Done():
		}
	}()
	err := f(ctx)
	if err != nil && context.Cause(ctx) == context.DeadlineExceeded {
		err = fmt.Errorf("no answer within %v: %w", m.callTimeout(), err)
	}
	return err
}

func (m *Member) get(name string) (r Record, err error) {
	err = m.call(m.ctx, func(ctx context.Context) error {
		r, err = m.store.Get(ctx, name)
		return err
	})
	return r, err
}

// put creates a record that has no version yet, and updates others.
func (m *Member) put(r Record) (stored Record, err error) {
	write := m.store.Update
	if r.Version == "" {
		write = m.store.Create
	}
	err = m.call(m.ctx, func(ctx context.Context) error {
		stored, err = write(ctx, r)
		return err
	})
	return stored, err
}

func (m *Member) listRecords() (records []Record, version string, err error) {
	err = m.call(m.ctx, func(ctx context.Context) error {
		records, version, err = m.store.List(ctx, m.config.Group)
		return err
	})
	return records, version, err
}

// sleep waits for d, a signal, or the end of ctx or the member, for which it returns an error.
func (m *Member) sleep(ctx context.Context, d time.Duration, signals <-chan struct{}) error {
	timer := m.config.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-signals:
	case <-ctx.Done():
		return ctx.Err()
	case <-m.ctx.Done():
		return m.ctx.Err()
	}
	return nil
}

// signal makes a loop look again.
func signal(toLoop chan struct{}) {
	select {
	case toLoop <- struct{}{}:
	default: // It has not received the last one yet.
	}
}
