package sharding

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
)

// Memory returns a store in the memory of this process: for tests, and for programs that show how sharding works.
func Memory() Store { return &memory{records: make(map[string]Record), changed: make(chan struct{})} }

// memory keeps records, and the last changes of them. Versions count changes.
type memory struct {
	mu      sync.Mutex // guards what follows
	records map[string]Record
	version int
	// history has the last changes. Its end is that of version.
	history []Event
	// changed is closed at the next change.
	changed chan struct{}
}

// maxHistory is how many changes a watch may lag behind.
const maxHistory = 1000

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

// since returns the changes after a version, and a channel that is closed when there are more. It returns false if they
// are forgotten.
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
	r.Version = strconv.Itoa(m.version + 1)
	m.records[r.Name] = r
	m.appendLocked(Event{Record: r})
	return r
}

func (m *memory) appendLocked(e Event) {
	m.version++
	m.history = append(m.history, e)
	if len(m.history) > 2*maxHistory {
		m.history = slices.Clone(m.history[maxHistory:])
	}
	close(m.changed)
	m.changed = make(chan struct{})
}
