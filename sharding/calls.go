package sharding

import (
	"context"
	"fmt"
)

func (m *Member) recordName(id string) string { return m.config.Group + "-member-" + id }
func (m *Member) tableName() string           { return m.config.Group + "-table" }

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
