package sharding

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"
)

// life is what a member knows about another one's life.
//
//	           not renewed for a lease          this or another member has marked its record
//	present ──────────────────────────▶ silent ──────────────────────────────────────────────▶ dead
//	   │                                  │                                                      ▲
//	   │  its record is gone: somebody else has deleted it, perhaps a person          for a lease │
//	   └──────────────────────────────────┴───────────────────────────────▶ gone ────────────────┘
//
// A member whose record is gone may not know that yet, so its slots stay with it for another lease.
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
	// known is when the member was seen first. Its lease counts from leaseFrom: when this version was seen, or
	// the record was found to be gone. extendLeasesLocked may set it later.
	known, leaseFrom time.Duration
	isGone           bool
	// serial counts the records of all members in the order in which they were seen. renewed: this is not the
	// first version that was seen of this one.
	serial  int64
	renewed bool
	// mustRead: the record must be read, because it vanished from the watch or a list, or came back.
	mustRead bool
	// markedByMe: this member has marked the record. former: it belongs to an earlier life of this process.
	markedByMe, former bool
	// markErr is why the record could not be marked, if that has failed, and retry is when to try it again.
	markErr error
	retry   time.Duration
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

// expires returns until when the member lives if it does not renew its record.
func (s *knownMember) expires() time.Duration {
	if s.former { // Nobody renews that record any more.
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
	case s.data.Dead: // For good, so nobody reads it: else each member would read the records of all that leave.
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

// watch follows the records from the last list on, until the watch ends. It ends a watch that does not show
// the member's own renewals, because that one has stalled.
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

// sawMemberLocked notes a member's record, and reports whether more has changed than its renewal. A late
// watch may show an older record: then the member counts as alive for up to a lease too long, which is
// harmless.
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
	view.epoch = max(view.epoch, d.Epoch)
	view.lease = max(view.lease, time.Duration(d.Lease), time.Duration(d.LongestLease))
}

// isAheadOf reports whether the member has known a later state of the table.
func (s *knownMember) isAheadOf(t *table) bool {
	return s.data.Table == t.id && s.data.TableEpoch > t.epoch
}

// isOutdatedLocked reports whether a record that was seen with a serial number up to upTo names a later state
// of the table. If t was read after such a record, the table was rolled back.
func (m *Member) isOutdatedLocked(t *table, upTo int64) bool {
	for _, s := range m.mu.members {
		if s.serial <= upTo && s.isAheadOf(t) {
			return true
		}
	}
	return false
}

// takesNothingUntilLocked returns until when the member gives away no slots but its own. The table may come
// from a backup, and others may hold slots that it gives to the dead, or to nobody. They notice that, or stop
// being valid, within a lease.
func (m *Member) takesNothingUntilLocked(now time.Duration) time.Duration {
	switch until := m.mu.restoreSuspected + m.mu.view.lease; {
	case until > now:
		return until
	case !m.hasRenewedSinceLocked(never):
		signal(m.toRenew) // A renewal wakes this loop again.
	case !m.mustHearOthersLocked(now):
		return now
	}
	return now + m.config.Lease
}

// mustHearOthersLocked reports whether this member, since it joined or was out of touch, has not heard yet
// from all that were there before: each of them must have renewed its record, or be dead. A renewed record
// shows whether its member knows a later table than this one, which may come from a backup or be a copy.
func (m *Member) mustHearOthersLocked(now time.Duration) bool {
	listed := m.mu.self.listedUpTo
	for id, s := range m.mu.members {
		if id != m.mu.self.id && 0 < s.serial && s.serial <= listed && s.life(now) != dead {
			return true
		}
	}
	return listed == notListed
}

// memberLocked returns what is known of a member. A new one may live for the longest lease of the group.
func (m *Member) memberLocked(id string) *knownMember {
	s := m.mu.members[id]
	if s == nil {
		now := m.now()
		s = &knownMember{known: now, leaseFrom: now, former: m.mu.formers[id]}
		s.data.Lease = int64(m.mu.view.lease)
		m.mu.members[id] = s
	}
	return s
}
