package sharding

import (
	"context"
	"errors"
	"strconv"
	"sync"
)

// Memory returns a store in the memory of this process: for tests, and for programs that show how sharding works.
func Memory() Store { return &memory{records: make(map[string]Record), changed: make(chan struct{})} }

// memory keeps records, and all changes of them since it was made.
type memory struct {
	mu      sync.Mutex // guards what follows
	records map[string]Record
	// history has change i+1 at index i.
	history []Event
	// changed is closed at the next change.
	changed chan struct{}
}

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
	return records, strconv.Itoa(len(m.history)), nil
}

func (m *memory) Watch(ctx context.Context, group, version string, changed func(Event)) error {
	next, err := strconv.Atoi(version)
	if err != nil || next < 0 {
		return errors.New("sharding: no such version: " + version)
	}
	for {
		events, more := m.since(next)
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

// since returns the changes from index next on, and a channel that is closed when there are more.
func (m *memory) since(next int) ([]Event, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.history[min(next, len(m.history)):], m.changed
}

func (m *memory) Create(ctx context.Context, r Record) (Record, error) {
	if err := ctx.Err(); err != nil {
		return Record{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.records[r.Name]; ok {
		return Record{}, ErrExists
	}
	return m.putLocked(r), nil
}

func (m *memory) Update(ctx context.Context, r Record) (Record, error) {
	if err := ctx.Err(); err != nil {
		return Record{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.checkLocked(r.Name, r.Version); err != nil {
		return Record{}, err
	}
	return m.putLocked(r), nil
}

func (m *memory) Delete(ctx context.Context, name, version string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.checkLocked(name, version); err != nil {
		return err
	}
	r := m.records[name]
	delete(m.records, name)
	m.appendLocked(Event{Record: r, Deleted: true})
	return nil
}

func (m *memory) checkLocked(name, version string) error {
	r, ok := m.records[name]
	if !ok {
		return ErrNotFound
	}
	if r.Version != version {
		return ErrConflict
	}
	return nil
}

func (m *memory) putLocked(r Record) Record {
	r.Version = strconv.Itoa(len(m.history) + 1)
	m.records[r.Name] = r
	m.appendLocked(Event{Record: r})
	return r
}

func (m *memory) appendLocked(e Event) {
	m.history = append(m.history, e)
	close(m.changed)
	m.changed = make(chan struct{})
}
