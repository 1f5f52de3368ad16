package sharding

import (
	"context"
	"strings"
)

// watchLoop follows the records of the group. Join has listed them.
func (m *Member) watchLoop() {
	for err := error(nil); ; err = m.list() {
		if err == nil {
			began := m.now()
			ended := m.watch()
			m.noAnswer()
			log := m.logger.Debug
			if m.now()-began < m.config.Lease/3 { // Without a watch each change is found by a list.
				log = m.logger.Warn
			}
			log("The watch has ended", "member", m.ID(), "err", ended)
		} else {
			m.report("Cannot list the records", err)
		}
		if m.sleep(m.ctx, m.retryDelay(), nil) != nil {
			return
		}
	}
}

// watch follows the records from the last list on. It ends one that shows nothing for half a lease.
func (m *Member) watch() error {
	m.mu.Lock()
	from := m.mu.listVersion
	m.mu.heardAt = m.now()
	m.mu.Unlock()
	ctx, cancel := context.WithCancel(m.ctx)
	defer cancel()
	go func() {
		for m.sleep(ctx, m.config.Lease/6, nil) == nil {
			m.mu.Lock()
			if m.now()-m.mu.heardAt > m.config.Lease/2 {
				cancel()
			}
			m.mu.Unlock()
		}
	}()
	return m.store.Watch(ctx, m.config.Group, from, m.changed)
}

// list reads all records of the group.
func (m *Member) list() error {
	began := m.now()
	records, version, err := m.listRecords()
	if err != nil {
		return err
	}
	listed := make(map[string]bool)
	for _, r := range records {
		m.changed(Event{Record: r})
		listed[m.idOf(r)] = true
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
		m.memberChanged(id, e)
	}
}

func (m *Member) memberChanged(id string, e Event) {
	m.mu.Lock()
	defer m.updateAndUnlock()
	m.mu.heardAt = m.now()
	if e.Deleted {
		m.noteMissingLocked(m.memberLocked(id))
	} else if m.sawMemberLocked(id, e.Record, false) {
		signal(m.toWork)
	}
	if id == m.mu.self.id && (e.Deleted || m.mu.members[id].data.Dead) {
		signal(m.toRenew)
	}
}
