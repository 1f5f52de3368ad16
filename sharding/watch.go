package sharding

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// longestWatchPause bounds the time without a watch. A watch that has lasted as long has ended in good order.
const longestWatchPause = 10 * time.Second

// watchLoop follows the records of the group. Join has listed them. It pauses after a list that failed, and
// after a watch that ended soon: without a watch each change is found by a list.
func (m *Member) watchLoop() {
	var failures failureCount
	for err := error(nil); m.ctx.Err() == nil; err = m.list() {
		m.logFailure(&failures, "Cannot list the records", err)
		mustPause := err != nil
		if err == nil {
			began, level := m.now(), slog.LevelDebug
			ended := m.watch()
			if m.ctx.Err() != nil {
				return
			}
			if mustPause = m.now()-began < min(m.config.Lease/3, longestWatchPause); mustPause {
				level = slog.LevelWarn
			}
			m.logger.Log(m.ctx, level, "The watch has ended", "member", m.ID(), "err", ended)
		}
		if mustPause && m.sleep(m.ctx, min(m.retryDelay(), longestWatchPause), nil) != nil {
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
