package sharding

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"
)

// life is what a member knows of another one's life.
//
//	           not renewed for a lease          this or another member has marked its record
//	present ──────────────────────────▶ silent ──────────────────────────────────────────────▶ dead
//	   │                                  │                                                      ▲
//	   │  its record is gone: somebody else has deleted it, perhaps a person          for a lease │
//	   └──────────────────────────────────┴───────────────────────────────▶ gone ────────────────┘
//
// A record that is gone may be that of a member that does not know it yet, so its slots stay with it for
// another lease.
type life int

const (
	present life = iota
	silent
	gone
	dead // Only then may its slots be given away.
)

// knownMember is another member's record, or the member's own, as others see it.
type knownMember struct {
	data    memberData
	version string
	// usable: data is of this library and version, and of the same number of slots.
	usable bool
	// known is when the member was seen for the first time. leaseFrom is when this version was, or when the
	// record was found to be gone, or later: see extendLeasesLocked.
	known, leaseFrom time.Duration
	isGone           bool
	// serial is this version's number among all records that were seen. renewed: there was another version
	// before it.
	serial  int64
	renewed bool
	// mustRead: the record must be read, because it vanished from the watch or a list, or came back.
	mustRead bool
	// markedByMe: this member has marked the record. former: it is that of an earlier life of this process.
	markedByMe, former bool
	// unmarked is why the record could not be marked, if that has failed, and retry is when to try it again.
	unmarked error
	retry    time.Duration
}

func (s *knownMember) life(now time.Duration) life {
	expired := now >= s.expires()
	switch {
	case s.data.Dead, s.isGone && expired && !s.mustRead:
		return dead
	case s.isGone:
		return gone
	case expired:
		return silent
	}
	return present
}

// expires returns until when the member lives if nothing is heard of it.
func (s *knownMember) expires() time.Duration {
	if s.former { // This process has given that life up, so nobody renews the record.
		return s.known
	}
	return s.leaseFrom + time.Duration(s.data.Lease)
}

// isAlive reports whether the member takes part in the group, as far as is known.
func (s *knownMember) isAlive(now time.Duration) bool {
	return s.usable && !s.mustRead && s.life(now) == present
}

func (s *knownMember) noteGone(now time.Duration) {
	if !s.isGone {
		s.isGone, s.leaseFrom = true, now
	}
	s.mustRead = false
}

// missLocked notes that the watch or a list does not show a member's record any more.
func (m *Member) missLocked(s *knownMember) {
	switch {
	case s.data.Dead: // For good, so it is not read. Otherwise each member would read the records of all that leave.
		s.noteGone(m.now())
	case !s.isGone:
		s.mustRead = true // It is still there if only its label has changed.
	}
	signal(m.toWork)
}

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

// watch follows the records from the last list on, until the watch ends. The member's own renewals come back
// by it. A watch that does not report them has stalled, and is ended.
func (m *Member) watch() error {
	m.mu.Lock()
	from := m.mu.listVersion
	m.mu.heard = m.now()
	m.mu.Unlock()
	ctx, cancel := context.WithCancel(m.ctx)
	defer cancel()
	go func() {
		for m.sleep(ctx, m.config.Lease/6, nil) == nil {
			m.mu.Lock()
			silent := m.now() - m.mu.heard
			m.mu.Unlock()
			if silent > m.config.Lease/2 {
				cancel()
			}
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
	for id, s := range m.mu.members {
		if !listed[id] && s.known < began {
			m.missLocked(s)
		}
	}
	return nil
}

// idOf returns the id of the member whose record r is, or "" if it is none.
func (m *Member) idOf(r Record) string {
	id, ok := strings.CutPrefix(r.Name, m.recordName(""))
	if !ok {
		return ""
	}
	return id
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
	defer m.unlock()
	m.mu.heard = m.now()
	if e.Deleted {
		m.missLocked(m.memberLocked(id))
	} else if m.sawMemberLocked(id, e.Record, false) {
		signal(m.toWork)
	}
	if id == m.mu.self.id && (e.Deleted || m.mu.members[id].data.Dead) {
		signal(m.toRenew)
	}
}

// sawMemberLocked notes a member's record. A late watch may show an older one: then the member counts as
// alive for up to a lease too long, which is harmless. It reports whether there is other news than a renewal.
func (m *Member) sawMemberLocked(id string, r Record, isRead bool) (news bool) {
	s := m.memberLocked(id)
	s.mustRead = false
	d, err := m.decodeOther(id, r)
	if s.version == r.Version && !s.isGone && s.usable == (err == nil) &&
		(err != nil || s.data.Sequence == d.Sequence && s.data.Dead == d.Dead) { // After a restore versions repeat.
		return false
	}
	before, was := *s, s.life(m.now())
	if (s.isGone || s.data.Dead && err == nil && !d.Dead) && !isRead {
		s.mustRead = true // The watch is late, or a restore has brought the record back.
		return true
	}
	s.version, s.leaseFrom, s.isGone, s.serial = r.Version, m.now(), false, m.recordsSeen.Add(1)
	s.renewed = before.version != ""
	if s.usable = err == nil; !s.usable {
		// The member keeps the lease that was known last.
		if before.usable || before.version == "" {
			m.logger.Error("Ignoring a member", "member", id, "err", err)
		}
		return true
	}
	s.data = d
	m.learnLocked(d)
	if t := m.mu.view.table; t != nil && s.isAheadOf(t) {
		signal(m.toConfirm)
	}
	return !before.renewed || was != s.life(m.now()) || !before.usable ||
		!maps.Equal(before.data.Hashes, d.Hashes) || before.data.Queues != d.Queues
}

// decodeOther returns a member's data, and an error if this member cannot share slots with it.
func (m *Member) decodeOther(id string, r Record) (memberData, error) {
	d, err := decodeMember(r)
	switch {
	case err != nil:
		return d, err
	case d.ID != id:
		return d, foreign(r, fmt.Errorf("member %q", d.ID))
	case d.Slots != m.config.Slots:
		return d, otherSlots(r, d.Slots, m.config.Slots)
	}
	return d, nil
}

// learnLocked notes what a member's record says of all tables and members.
func (m *Member) learnLocked(d memberData) {
	view := &m.mu.view
	view.epoch, view.lease = max(view.epoch, d.Epoch), max(view.lease, time.Duration(d.Lease), time.Duration(d.LongestLease))
}

// isAheadOf reports whether the member has known a later state of the table.
func (s *knownMember) isAheadOf(t *table) bool {
	return s.data.Table == t.id && s.data.TableEpoch > t.epoch
}

// isOutdatedLocked reports whether one of the records that were seen up to that serial number names a later
// state of the table. A table that was read after that has gone back.
func (m *Member) isOutdatedLocked(t *table, upTo int64) bool {
	for _, s := range m.mu.members {
		if s.serial <= upTo && s.isAheadOf(t) {
			return true
		}
	}
	return false
}

// takesNothingUntilLocked returns until when the member gives away no slots but its own. The table may be one
// of a backup: others may hold what it gives to the dead, or to nobody. They notice it, or lose their
// validity, within a lease.
func (m *Member) takesNothingUntilLocked(now time.Duration) time.Duration {
	switch until := m.mu.restoreSuspected + m.mu.view.lease; {
	case until > now:
		return until
	case !m.hasRenewedSinceLocked(never):
		signal(m.toRenew) // which makes this loop look again
	case !m.mustHearOthersLocked(now):
		return now
	}
	return now + m.config.Lease
}

// mustHearOthersLocked reports whether this member has joined, or was out of touch, so recently that others
// may hold slots that a table from a backup or a copy does not show as theirs. They notice it when they read
// that table, or their records show it when they are renewed. So each of the members that were there before
// must have renewed its record since, or be dead.
func (m *Member) mustHearOthersLocked(now time.Duration) bool {
	listed := m.mu.self.listedUpTo
	for id, s := range m.mu.members {
		if id != m.mu.self.id && 0 < s.serial && s.serial <= listed && s.life(now) != dead {
			return true
		}
	}
	return listed == notListed
}

// memberLocked returns what is known of a member. Of a new one that is only how long it may live.
func (m *Member) memberLocked(id string) *knownMember {
	s := m.mu.members[id]
	if s == nil {
		now := m.now()
		s = &knownMember{data: memberData{Lease: int64(m.mu.view.lease)}, known: now, leaseFrom: now, former: m.mu.formers[id]}
		m.mu.members[id] = s
	}
	return s
}

// markSilent marks the records of members that have not renewed them for a whole lease. Such a member can
// then not renew its record any more, although it may not know it yet; by its own clock its validity is over.
func (m *Member) markSilent(now time.Duration) (due time.Duration, err error) {
	m.mu.Lock()
	wait := m.turnLocked(now)
	due = now + m.config.Lease
	var silents []string
	for id, s := range m.mu.members {
		if id == m.mu.self.id || s.life(now) >= gone || !m.validLocked() || s.former && m.anyBusy() {
			continue
		}
		expires := s.expires()
		switch at := max(expires+wait, s.retry); {
		case at > now:
			due = min(due, at)
		case !m.hasRenewedSinceLocked(expires):
			signal(m.toRenew) // which makes this loop look again
		default:
			silents = append(silents, id)
		}
	}
	m.mu.Unlock()
	for _, id := range silents {
		if err := m.markDead(id); err != nil {
			m.mu.Lock()
			s := m.memberLocked(id)
			s.unmarked, s.retry = err, m.now()+m.retryDelay() // Each try takes a renewal as well.
			m.mu.Unlock()
			return due, err
		}
	}
	return due, nil
}

// unmarkedLocked returns why another member still counts as silent a lease after it could have been taken for
// dead, if this member cannot mark its record.
func (m *Member) unmarkedLocked() error {
	now := m.now()
	for id, s := range m.mu.members {
		if s.unmarked != nil && s.life(now) == silent && now >= s.expires()+m.config.Lease {
			return fmt.Errorf("sharding: cannot mark the record of %s, which is dead: %w", id, s.unmarked)
		}
	}
	return nil
}

// hasRenewedSinceLocked reports whether the member has renewed its own record since then, and since the
// server was last away. Only that shows that no backup was restored meanwhile, which would have taken back
// what others have written.
func (m *Member) hasRenewedSinceLocked(then time.Duration) bool {
	return m.mu.self.renewed.mono >= max(then, m.mu.unanswered)
}

// markDead reads the record once more, because what the watch has shown may be old, and marks it on condition
// that it has not changed since. A mark shows everybody, and for good, that the member did not just lose its
// record.
func (m *Member) markDead(id string) error {
	r, err := m.findMember(id)
	m.mu.Lock()
	s := m.memberLocked(id)
	isSilent := err == nil && s.life(m.now()) == silent
	d := s.data
	m.mu.Unlock()
	if !isSilent {
		return err
	}
	d.Format, d.ID, d.Slots, d.Dead = formatVersion, id, m.config.Slots, true // Of a record that cannot be read nothing else is known.
	r.Data = encode(d, d.unknown)
	if r, err = m.put(r); errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound) {
		_, err = m.findMember(id)
		return err
	} else if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.unlock()
	m.sawMemberLocked(id, r, true)
	m.mu.members[id].markedByMe = true
	m.logger.Warn("A member has not renewed its lease: taking over", "dead", id, "lease", time.Duration(d.Lease))
	return nil
}

// findHolders looks for members that the table names and the watch has not shown, and for those that have
// vanished from it. It deletes marked records that the table names no more.
func (m *Member) findHolders(now time.Duration) (due time.Duration, err error) {
	var lost []string
	remains, version := "", "" // One at a time: each costs two calls.
	due = now + m.config.Lease
	m.mu.Lock()
	if t := m.mu.view.table; t != nil {
		named := t.named()
		for id := range named {
			if m.mu.members[id] == nil && id != m.mu.self.id {
				lost = append(lost, id)
			}
		}
		for id, s := range m.mu.members {
			switch {
			case s.mustRead:
				lost = append(lost, id)
			case named[id] || s.life(now) != dead || !m.validLocked():
			case s.isGone && s.former: // It may still be created.
			case s.isGone:
				delete(m.mu.members, id)
			case m.mu.leaving: // Others do it.
			default:
				if at := s.leaseFrom + m.turnLocked(now); at > now {
					due = min(due, at)
				} else {
					remains, version = id, s.version
				}
			}
		}
	}
	m.mu.Unlock()
	for _, id := range lost {
		if _, err := m.findMember(id); err != nil {
			return now, err
		}
	}
	if remains == "" {
		return due, nil
	}
	err = m.call(m.ctx, func(ctx context.Context) error { return m.store.Delete(ctx, m.recordName(remains), version) })
	if err == nil || errors.Is(err, ErrNotFound) || errors.Is(err, ErrConflict) {
		_, err = m.findMember(remains)
		return now, err
	}
	m.mu.Lock()
	m.mu.members[remains].leaseFrom = m.now() + m.config.Lease // Then it is tried again. A marked record stays dead.
	m.mu.Unlock()
	return due, err
}

// findMember reads a member's record that the watch has not shown. Only that shows that it is gone: the watch
// may lag behind the table that names the member. So the table must have been read before.
func (m *Member) findMember(id string) (Record, error) {
	r, err := m.get(m.recordName(id))
	m.mu.Lock()
	defer m.mu.Unlock()
	switch s := m.memberLocked(id); {
	case err == nil:
		if m.sawMemberLocked(id, r, true) {
			signal(m.toWork)
		}
	case errors.Is(err, ErrNotFound):
		s.noteGone(m.now())
		err = nil
	}
	return r, err
}
