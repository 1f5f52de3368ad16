package sharding

import (
	"errors"
	"math"
	"time"
)

// own is the member's own record, as the member knows it.
//
// client-go's tools/leaderelection (0.29 to 0.37) cannot keep it. It creates a record that was deleted again, with the same
// identity, and goes on; here others have given the member's slots away by then. It goes on for RetryPeriod and RenewDeadline
// from the end of a renewal, and others count from its beginning or any time up to the end, so a slow call takes it past their
// lease. And it keeps neither the id of the table nor a sequence in the record.
type own struct {
	id      string
	version string // empty until the record is stored
	// sequence counts attempts to write the record. attempts has those that may be in it, or get into it.
	sequence int64
	attempts map[int64]attempt
	// alive: the record may be there. Only while the member's record is there nobody gives its slots away.
	alive bool
	// renewed is when the last attempt began that is known to have succeeded.
	renewed time.Duration
	// follows is the table that the record names. The record has been stored with it at followsSince or earlier.
	follows      string
	followsSince time.Duration
}

type attempt struct {
	began   time.Duration
	follows string
}

// never is a time before all others.
const never = math.MinInt64 / 2

func (m *Member) newSelf() own {
	return own{
		id: m.config.newID(idName(m.config.Name)), attempts: make(map[int64]attempt), alive: true,
		renewed: never, followsSince: never, follows: m.mu.self.follows,
	}
}

// renew creates the member's record, or writes it again.
func (m *Member) renew() error {
	for range 3 {
		r, sequence, ok := m.nextAttempt()
		if !ok {
			return nil
		}
		create := r.Version == ""
		if create && sequence > 1 {
			// The first attempt has reported an error. If it succeeded nevertheless, others may have deleted the
			// record by now, so a second one could bring back a member that they take for dead.
			if upToDate, err := m.readSelf(); err != nil || upToDate {
				return err
			}
			continue
		}
		r, err := m.put(r)
		switch {
		case err == nil:
			m.stored(sequence, r.Version)
			return nil
		case errors.Is(err, ErrNotFound) && !create:
			m.died()
			continue // as a new member
		case errors.Is(err, ErrConflict):
			// An earlier attempt may have succeeded although it reported an error.
			if upToDate, err := m.readSelf(); err != nil || upToDate {
				return err
			}
		default:
			return err
		}
	}
	return ErrConflict
}

// nextAttempt begins an attempt to write the record. It returns false if the member has left.
func (m *Member) nextAttempt() (r Record, sequence int64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.finished {
		return r, 0, false
	}
	self := &m.mu.self
	self.sequence++
	a := attempt{began: m.now(), follows: m.followLocked()}
	self.attempts[self.sequence] = a
	return Record{
		Name: m.recordName(self.id), Group: m.config.Group, Version: self.version,
		Data: encode(memberData{
			Format: formatVersion, ID: self.id, Sequence: self.sequence, Lease: int64(m.config.Lease),
			Table: a.follows, Epoch: m.mu.view.epoch,
		}),
		Holder: self.id, Lease: m.config.Lease, Renewed: m.config.Clock.Now(),
	}, self.sequence, true
}

// followLocked returns the id of the table that the record should name. A member that names a new one says that it
// holds nothing by the last one any more. That includes handlers that still run.
func (m *Member) followLocked() string {
	t := m.mu.view.table
	if t == nil || t.id == m.mu.self.follows || m.mu.self.follows != "" && m.anyBusy() {
		return m.mu.self.follows
	}
	return t.id
}

// stored notes that an attempt is in the record, which has that version. The member's validity counts from the
// beginning of the attempt: others may have seen it at any time since.
func (m *Member) stored(sequence int64, version string) (upToDate bool) {
	m.mu.Lock()
	defer m.applyAndUnlock()
	self := &m.mu.self
	self.version = version
	if a, ok := self.attempts[sequence]; ok {
		self.renewed = max(self.renewed, a.began)
		if self.follows != a.follows || self.followsSince == never {
			self.follows, self.followsSince = a.follows, m.now()
			signal(m.toConfirm)
		}
		for s := range self.attempts { // Earlier ones conflict with this one.
			if s <= sequence {
				delete(self.attempts, s)
			}
		}
	}
	return sequence == self.sequence
}

// readSelf reads the record after a conflict. It returns true if the last attempt has succeeded.
func (m *Member) readSelf() (upToDate bool, err error) {
	id := m.ID()
	r, err := m.get(m.recordName(id))
	if errors.Is(err, ErrNotFound) {
		m.died()
		return false, nil
	}
	if err != nil {
		return false, err
	}
	d, err := decodeMember(r)
	if err != nil || d.ID != id {
		m.logger.Error("Something else writes the member's record. Going on as a new member", "member", id, "err", err)
		m.died()
		return false, nil
	}
	return m.stored(d.Sequence, r.Version), nil
}

// died ends the life of a member whose record is gone: others may give its slots away at any time. The process goes on
// as a new member, without slots.
func (m *Member) died() {
	m.mu.Lock()
	if m.mu.self.version != "" {
		m.logger.Error("The member's record is gone: others believe that it is dead. Going on as a new member", "member", m.mu.self.id)
		m.mu.stats.LostLeases++
	}
	m.mu.self.alive = false
	m.applyAndUnlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.self = m.newSelf()
}

// validLocked reports whether the member may hold slots now: for a lease less the margin after the beginnings of its last
// renewal, and of the last call that showed that its table is still there.
func (m *Member) validLocked() bool {
	self, view := &m.mu.self, &m.mu.view
	until := min(self.renewed, view.confirmed) + m.config.Lease - m.config.Margin
	if !self.alive || view.table == nil || view.incompatible != nil || self.follows != view.table.id {
		until = never
	}
	was := m.validUntil.Swap(int64(until))
	if int64(until) > was {
		signal(m.toExpire)
	}
	return m.now() < until
}

// expireLoop ends the holding of slots when the member's validity ends.
func (m *Member) expireLoop() {
	for {
		left := time.Duration(m.validUntil.Load()) - m.now()
		if left <= 0 {
			m.look()
			left = m.config.Lease
		}
		if m.sleep(m.ctx, left, m.toExpire) != nil {
			return
		}
	}
}
