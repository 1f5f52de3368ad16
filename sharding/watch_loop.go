package sharding

import (
	"fmt"
	"strings"
	"time"
)

// longestWatchPause bounds the time without a watch. A watch that has lasted as long has ended in good order.
const longestWatchPause = 10 * time.Second

// watchLoop follows the records of the group, by a watch, or by lists alone if no watch works. It decides
// nothing: it notes in mu.members and mu.view what it sees, which may be late, and signals the loops that
// must look. Join has listed the records before. The loop pauses after a list that failed, and after a watch
// that ended soon.
func (m *Member) watchLoop() {
	var failures, watchFailures failureCount
	for err := error(nil); m.ctx.Err() == nil; err = m.list() {
		m.logFailure(&failures, "Cannot list the records", err)
		mustPause := err != nil
		if err == nil {
			began := m.now()
			m.mu.Lock()
			from := m.mu.listVersion
			m.mu.Unlock()
			// Nothing needs the watch to be in time: a member also reads the table before it renews its record, and
			// another member's record before it marks it.
			ended := m.store.Watch(m.ctx, m.config.Group, from, m.changed)
			mustPause = m.now()-began < min(m.config.Lease/3, longestWatchPause)
			if mustPause {
				m.logFailure(&watchFailures, "The watch has ended", ended)
			}
		}
		if (mustPause || m.ctx.Err() != nil) && m.sleep(m.ctx, min(m.retryDelay(), longestWatchPause), nil) != nil {
			return
		}
	}
}

// list reads all records of the group.
func (m *Member) list() error {
	began := m.now()
	records, version, err := m.listRecords()
	listed := make(map[string]bool)
	for _, r := range records {
		m.changed(Event{Record: r})
		listed[m.idOf(r)] = true
	}
	if err != nil {
		return fmt.Errorf("cannot list the members: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.listVersion = version
	for id, k := range m.mu.members {
		if !listed[id] && k.firstSeen < began {
			m.noteMissingLocked(k)
		}
	}
	return nil
}

// idOf returns the id of the member whose record r is, or "" for other records.
func (m *Member) idOf(r Record) string {
	if id, ok := strings.CutPrefix(r.Name, m.recordName("")); ok {
		return id
	}
	return ""
}

func (m *Member) changed(e Event) {
	if e.Record.Name == m.tableName() {
		m.tableChanged(e)
	} else if id := m.idOf(e.Record); id != "" {
		m.update(func() { m.memberChangedLocked(id, e) })
	}
}

func (m *Member) memberChangedLocked(id string, e Event) {
	if e.Deleted {
		m.noteMissingLocked(m.memberLocked(id))
	} else if m.sawMemberLocked(id, e.Record) {
		signal(m.toWork)
	}
	if id == m.mu.self.id && (e.Deleted || m.mu.members[id].data.Dead) {
		signal(m.toRefresh)
	}
}
