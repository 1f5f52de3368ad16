package sharding

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"time"
)

// ownRecord is the member's record. docs/project/sharding.md says why client-go cannot keep it.
type ownRecord struct {
	id      string
	version string // empty until the record is stored
	// sequence counts attempts to write the record. attempts has those that may be in it, or get into it.
	sequence       int64
	attempts       map[int64]attempt
	storedSequence int64 // that of the record when it was seen last
	// alive: as far as the member knows, its record is there, unmarked, so nobody gives its slots away.
	alive   bool
	renewed moment // when the last attempt began that is known to have succeeded
	// follows is the table that the record names. The record has been stored with it at followsSince or earlier.
	follows      string
	followsSince time.Duration
	// lastListedSerial is lastSerial after the first list since Join or the last outage, or notListed.
	lastListedSerial int64
}

const notListed = math.MaxInt64

type attempt struct {
	began   moment
	follows string
}

// moment is a reading of both clocks: the monotonic one, which people cannot set, and the wall clock, which
// goes on while a machine is suspended.
type moment struct{ mono, wall time.Duration }

const never = math.MinInt64 / 2 // a time before all others

var neverMoment = moment{never, never}

// latest returns the later of two moments. Its wall may be the smaller one: that clock can be set back.
func (a moment) latest(b moment) moment {
	if a.mono > b.mono {
		return a
	}
	return b
}

// since returns the time from b to a by the clock that shows more of it.
func (a moment) since(b moment) time.Duration { return max(a.mono-b.mono, a.wall-b.wall) }

func (m *Member) nowByBoth() moment {
	return moment{m.now(), m.config.Clock.Now().Round(0).Sub(m.start.Round(0))}
}

func (m *Member) newSelf() ownRecord {
	return ownRecord{
		id: m.config.newID(idName(m.config.Name)), attempts: make(map[int64]attempt), alive: true,
		renewed: neverMoment, followsSince: never, follows: m.mu.self.follows, lastListedSerial: notListed}
}

// renew creates the member's record, or writes it again.
func (m *Member) renew() error {
	for range 3 {
		r, sequence, ok := m.nextAttempt()
		if !ok {
			return nil
		}
		if upToDate, err := m.writeSelf(r, sequence); err != nil {
			return err
		} else if upToDate {
			return m.listOnce()
		}
	}
	return ErrConflict
}

// writeSelf makes an attempt to write the record. If it returns false and no error, renew makes another.
func (m *Member) writeSelf(r Record, sequence int64) (upToDate bool, err error) {
	creates := r.Version == ""
	if creates && sequence > 1 {
		// The first attempt to create it has reported an error. If it succeeded nevertheless, others may have
		// ended the record's life by now, and a second one could bring back a member that they take for dead.
		return m.readSelf()
	}
	r, err = m.put(r)
	switch {
	case err == nil:
		m.noteStored(sequence, r.Version)
		return true, nil
	case creates && (errors.Is(err, ErrNotFound) || errors.Is(err, ErrRefused)):
		// There is no namespace, or a quota is used up. It was not created, for certain.
		m.mu.Lock()
		defer m.mu.Unlock()
		m.mu.self.sequence = 0
	case errors.Is(err, ErrNotFound):
		m.died()
		return false, nil
	case errors.Is(err, ErrConflict): // The record has an earlier attempt, or a mark.
		return m.readSelf()
	}
	return false, err
}

// listOnce lists the others' records after Join and after an outage. lastListedSerial shows that it has.
func (m *Member) listOnce() error {
	m.mu.Lock()
	id, listedSerial := m.mu.self.id, m.mu.self.lastListedSerial
	m.mu.Unlock()
	if listedSerial < notListed {
		return nil
	}
	err := m.list()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.mu.problem.list = fmt.Errorf("cannot list the members: %w", err)
		m.mu.since.othersNotListed = cmp.Or(m.mu.since.othersNotListed, m.now())
		return m.mu.problem.list
	}
	if m.mu.since.othersNotListed, m.mu.problem.list = 0, nil; m.mu.self.id == id {
		m.mu.self.lastListedSerial = m.lastSerial.Load()
	}
	return nil
}

// nextAttempt begins an attempt to write the record. It returns false if the member has left or is barred.
func (m *Member) nextAttempt() (r Record, sequence int64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.phase >= retiring || m.mu.barred != notBarred {
		return r, 0, false
	}
	self := &m.mu.self
	self.sequence++
	a := attempt{began: m.nowByBoth(), follows: m.followLocked()}
	self.attempts[self.sequence] = a
	return m.selfRecordLocked(a.follows, false), self.sequence, true
}

// selfRecordLocked returns the member's record. If it is dead, the record ends the member's life.
func (m *Member) selfRecordLocked(follows string, isDead bool) Record {
	self, view := &m.mu.self, &m.mu.view
	d := memberData{
		Format: formatVersion, ID: self.id, Sequence: self.sequence, Lease: int64(m.config.Lease),
		Slots: m.config.Slots, Hashes: m.mu.hashes, Queues: m.queuesIfAllLocked(), Busy: m.busyNotHeldLocked(),
		Table: follows, Earlier: view.earlier, Epoch: view.epochEver, LongestLease: int64(view.longestLease),
		Dead: isDead, Left: isDead && m.mu.phase >= leaving}
	if view.table != nil && view.table.id == follows {
		d.TableEpoch = view.table.epoch
	}
	held, _ := m.countLocked()
	return Record{
		Name: m.recordName(self.id), Group: m.config.Group, Version: self.version, Data: encode(d, nil),
		Holder: self.id, Lease: m.config.Lease, Renewed: m.config.Clock.Now(), Slots: held}
}

// followLocked returns the id of the table that the record should name. By naming a new one the member says
// that it holds nothing by the last one any more, but for the slots that it lists as busy.
func (m *Member) followLocked() string {
	if t := m.mu.view.table; t != nil && m.mu.view.incompatible == nil && m.mu.view.broken == nil {
		return t.id
	}
	return m.mu.self.follows
}

// busyNotHeldLocked returns the slots that the member does not hold and whose handlers still run, while the
// table is still to be filled: then these stay with the member.
func (m *Member) busyNotHeldLocked() (slots []int) {
	if t := m.mu.view.table; t != nil && t.settling {
		for i := range m.slots {
			if m.slots[i].heldAs == m.mu.self.id && m.isBusy(i) { // Those of an earlier life are others' now.
				slots = append(slots, i)
			}
		}
	}
	return slots
}

// noteStored notes that an attempt is in the record, which has that version. Validity counts from its
// beginning: others may have seen it at any time since.
func (m *Member) noteStored(sequence int64, version string) (upToDate bool) {
	m.mu.Lock()
	defer m.updateAndUnlock()
	self := &m.mu.self
	if sequence < self.storedSequence {
		m.suspectRestoreLocked()
	}
	self.version, self.storedSequence = version, sequence
	if a, ok := self.attempts[sequence]; ok {
		switch { // After a gap it may have missed renewals of others.
		case a.began.since(self.renewed) > m.config.Lease*2/3:
			m.extendLeasesLocked(1)
		case self.renewed.mono < m.mu.failedAt:
			m.extendLeasesLocked(1. / 3)
		}
		self.renewed = self.renewed.latest(a.began)
		signal(m.toWork) // markOverdue may wait for it.
		if self.follows != a.follows || self.followsSince == never {
			self.follows, self.followsSince = a.follows, m.now()
			signal(m.toConfirm)
		}
		// Earlier ones conflict with this one.
		maps.DeleteFunc(self.attempts, func(s int64, _ attempt) bool { return s <= sequence })
	}
	return sequence == self.sequence
}

// readSelf reads the record after a write that may have failed, and reports whether the last one succeeded.
func (m *Member) readSelf() (upToDate bool, err error) {
	id := m.ID()
	r, err := m.get(m.recordName(id))
	if err != nil && !errors.Is(err, ErrNotFound) {
		return false, err
	}
	if err == nil {
		switch d, err := decodeMember(r); {
		case d.ID == id && d.Dead:
		case d.ID == id && err == nil:
			return m.noteStored(d.Sequence, r.Version), nil
		default:
			m.logger.Error("Something else writes the member's record. Going on as a new member",
				"member", id, "err", err)
		}
	}
	m.died()
	return false, nil
}

// died ends the life of a member whose record is gone, or marked: others may give its slots away at any time.
// The process goes on as a new member, without slots.
func (m *Member) died() {
	m.mu.Lock()
	defer m.updateAndUnlock()
	if m.mu.phase >= retiring { // It has marked the record itself.
		return
	}
	if m.mu.self.version != "" && m.mu.barred == notBarred {
		m.logger.Error("The member's record is gone: others believe that it is dead. Going on as a new member",
			"member", m.mu.self.id)
		m.mu.stats.LostLeases++
	}
	id := m.mu.self.id
	m.mu.formerSelves[id] = true
	// While the server creates no records, there is one life a second whose record shows up later, if at all.
	if m.mu.members[id] != nil || m.mu.self.version != "" {
		m.memberLocked(id).isFormerSelf = true
	}
	m.mu.self.alive = false
	m.updateSlotsLocked() // It drops all slots.
	m.mu.self = m.newSelf()
	m.suspectRestoreLocked()
}

// updateValidityLocked publishes until when the member is valid: for a lease less the margin after its last
// renewal began, or its last look at the table if that was earlier. It reports whether it is valid now.
func (m *Member) updateValidityLocked() bool {
	self, view := &m.mu.self, &m.mu.view
	from := moment{min(self.renewed.mono, view.confirmed.mono), min(self.renewed.wall, view.confirmed.wall)}
	if !self.alive || view.table == nil || self.follows != view.table.id ||
		view.incompatible != nil || view.broken != nil {
		from = neverMoment
	}
	valid := m.config.Lease - m.config.Margin
	was := m.validUntil.Swap(int64(from.mono + valid))
	m.wallUntil.Store(int64(from.wall + valid))
	if int64(from.mono+valid) > was { // expireLoop may be asleep for longer than this lasts.
		signal(m.toExpire)
	}
	return !m.expired()
}

// expired reports whether the member's validity has ended by one of the clocks.
func (m *Member) expired() bool {
	now := m.nowByBoth()
	return now.mono >= time.Duration(m.validUntil.Load()) || now.wall >= time.Duration(m.wallUntil.Load())
}

// expireLoop ends the holding of slots when the member's validity ends. It looks more often because timers
// stand still while a machine is suspended.
func (m *Member) expireLoop() {
	for {
		now := m.nowByBoth()
		left := min(time.Duration(m.validUntil.Load())-now.mono, time.Duration(m.wallUntil.Load())-now.wall)
		if m.expired() {
			m.updateSlots()
			left = m.config.Lease
		}
		if m.sleep(m.ctx, min(left, m.config.Lease/60), m.toExpire) != nil {
			return
		}
	}
}

// barrier is what a member waits for that has given up its slots.
type barrier int

const (
	notBarred    barrier = iota
	untilWritten         // a write of the table must succeed first
	untilRead            // it must read a table that it can use, or that there is none
)

func (m *Member) barLocked(until barrier, why string, err error) {
	m.logger.Error(why, "member", m.mu.self.id, "err", err)
	m.mu.barred, m.mu.self.alive = until, false
	signal(m.toWork)
}

// admitLocked is called when what the member has waited for has happened. Until it has another id it must
// wait: its old record may get a mark at any time.
func (m *Member) admitLocked(until barrier) {
	if m.mu.barred == until && m.mu.self.version == "" {
		m.mu.barred, m.mu.self.alive = notBarred, true
		signal(m.toRenew)
	}
}

// giveUp bars a member that renews its record and cannot use the table for a lease: nobody else could get its
// slots. When a barred member's handlers have returned, it marks the record: then the others get the slots.
func (m *Member) giveUp(now time.Duration) (due time.Duration, err error) {
	m.mu.Lock()
	due = now + m.config.Lease
	if since := m.mu.since.unusable; since > 0 && m.mu.barred == notBarred && m.mu.phase == staying {
		if due = since + m.config.Lease; due <= now {
			m.barLocked(untilRead, "Cannot use the table for a lease. Giving up all slots", m.mu.problem.confirm)
		}
	}
	if m.mu.barred == notBarred || m.mu.self.version == "" || m.anyBusy() {
		m.updateAndUnlock()
		return due, nil
	}
	r := m.selfRecordLocked(m.mu.self.follows, true)
	m.updateAndUnlock()
	switch _, err = m.put(r); {
	case err == nil, errors.Is(err, ErrNotFound):
		m.died()
		return now, nil
	case errors.Is(err, ErrConflict): // with the last renewal
		_, err = m.readSelf()
	}
	return now + soon, err
}
