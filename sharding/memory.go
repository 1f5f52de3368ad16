package sharding

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
)

// Memory returns a store in the memory of this process: for tests, and for programs that show how it works.
func Memory() Store { return &memory{records: make(map[string]Record), changed: make(chan struct{})} }

// memory keeps records, and the last changes of them. Versions count changes.
type memory struct {
	mu      sync.Mutex // guards what follows
	records map[string]Record
	version int
	history []Event       // the last changes, up to version
	changed chan struct{} // closed at the next change
}

const maxHistory = 1000 // how many changes a watch may lag behind

func (m *memory) Get(ctx context.Context, name string) (Record, error) {
	if err := ctx.Err(); err != nil {
		return Record{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.records[name]
	if !ok {
		return Record{}, ErrNotFound
	}
	return r, nil
}

func (m *memory) List(ctx context.Context, group string) (records []Record, version string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.records {
		if r.Group == group {
			records = append(records, r)
		}
	}
	return records, strconv.Itoa(m.version), nil
}

func (m *memory) Watch(ctx context.Context, group, version string, changed func(Event)) error {
	next, err := strconv.Atoi(version)
	if err != nil {
		return err
	}
	for {
		events, more, ok := m.since(next)
		if !ok {
			return fmt.Errorf("sharding: there is no version %d, or it is too old", next)
		}
		for _, e := range events {
			if e.Record.Group == group {
				changed(e)
			}
		}
		next += len(events)
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// since returns the changes after a version, unless they are forgotten. more is closed when there are more.
func (m *memory) since(version int) (events []Event, more <-chan struct{}, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.version - version
	if n < 0 || n > len(m.history) {
		return nil, nil, false
	}
	return slices.Clone(m.history[len(m.history)-n:]), m.changed, true
}

func (m *memory) Create(ctx context.Context, r Record) (Record, error) {
	return m.change(ctx, Event{Record: r}, true)
}

func (m *memory) Update(ctx context.Context, r Record) (Record, error) {
	return m.change(ctx, Event{Record: r}, false)
}

func (m *memory) Delete(ctx context.Context, name, version string) error {
	_, err := m.change(ctx, Event{Record: Record{Name: name, Version: version}, Deleted: true}, false)
	return err
}

// change creates a record with a new name, or changes or deletes a record that has its version.
func (m *memory) change(ctx context.Context, e Event, create bool) (Record, error) {
	if err := ctx.Err(); err != nil {
		return Record{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r, found := m.records[e.Record.Name]
	switch {
	case create && found:
		return Record{}, ErrExists
	case !create && !found:
		return Record{}, ErrNotFound
	case !create && r.Version != e.Record.Version:
		return Record{}, ErrConflict
	}
	m.version++
	if e.Deleted {
		e.Record = r
		delete(m.records, r.Name)
	} else {
		e.Record.Version = strconv.Itoa(m.version)
		e.Record.UID = cmp.Or(r.UID, e.Record.Version)
		m.records[e.Record.Name] = e.Record
	}
	m.history = append(m.history[max(0, len(m.history)-maxHistory):], e)
	close(m.changed)
	m.changed = make(chan struct{})
	return e.Record, nil
}
