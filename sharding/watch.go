package sharding

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
)

// watchLoop follows the records of the group. Join has listed them.
func (m *Member) watchLoop() {
	var failures trouble
	for err := error(nil); ; err = m.list() {
		m.note(&failures, "Cannot list the records", err)
		if err == nil {
			began := m.now()
			ended := m.watch()
			level := slog.LevelDebug
			if m.now()-began < m.config.Lease/3 { // Without a watch each change is found by a list.
				level = slog.LevelWarn
			}
			m.logger.Log(m.ctx, level, "The watch has ended", "member", m.ID(), "err", ended)
		}
		if m.sleep(m.ctx, m.retryDelay(), nil) != nil {
			return
		}
	}
}

// watch follows the records from the last list on. Nothing needs it to be in time: a member also reads the
// table before it renews its record, and another member's record before it marks it.
func (m *Member) watch() error {
	m.mu.Lock()
	from := m.mu.listVersion
	m.mu.Unlock()
	return m.store.Watch(m.ctx, m.config.Group, from, m.changed)
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
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.mu.health.othersNotListed = cmp.Or(m.mu.health.othersNotListed, m.now())
		m.mu.health.listErr = fmt.Errorf("cannot list the members: %w", err)
		return m.mu.health.listErr
	}
	m.mu.health.othersNotListed, m.mu.health.listErr, m.mu.listVersion = 0, nil, version
	for id, k := range m.mu.members {
		if !listed[id] && k.firstSeen < began {
			m.noteMissingLocked(k)
		}
	}
	return nil
}

// idOf returns the id of the member whose record r is, or "" if it is none.
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
