package sharding

import "log/slog"

// effects are what follows from a change of the state under Member.mu. They are carried out when it is
// unlocked, because contexts, queues and loggers call foreign code.
type effects struct {
	// toEnd are tenures that must end. Those of endOnHold end for keys on hold alone.
	toEnd     []ending
	endOnHold []*tenure
	toList    []int // slots whose keys the queues must list
	shutDown  bool  // The queues must end.
	log       []logLine
}

type ending struct {
	tenure *tenure
	cause  error
}

// update runs f under mu, and carries out what follows when mu is unlocked. So no loop holds mu for longer
// than it takes to note something. Before f, it makes the slots what the table and the member's validity
// demand, so that f decides by that. After f it does so again, because f may have changed what they demand.
func (m *Member) update(f func()) {
	e := m.updateUnderLock(f)
	e.endTenures()
	m.carryOut(e)
}

func (m *Member) updateUnderLock(f func()) effects {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.updateSlotsLocked()
	f()
	m.updateSlotsLocked()
	e := m.mu.effects
	m.mu.effects = effects{}
	return e
}

// endTenures comes first, and does not block: handlers must end in time.
func (e effects) endTenures() {
	for _, ended := range e.toEnd {
		ended.tenure.end(ended.cause)
	}
	for _, t := range e.endOnHold {
		t.endContexts(ErrHandover, true)
	}
}

// carryOut passes changes on to the queues, and logs. A queue below may block in ShutDown, so that has a
// goroutine. These calls may be late: queues read a slot's state again before they add a key.
func (m *Member) carryOut(e effects) {
	for _, q := range *m.queues.Load() {
		if len(e.toList) > 0 {
			q.listLater(e.toList)
		}
		if e.shutDown {
			go q.ShutDown()
		}
	}
	for _, l := range e.log {
		m.logger.log(l.level, l.message, l.args...)
	}
}

// logLocked logs when mu is unlocked.
func (m *Member) logLocked(level slog.Level, message string, args ...any) {
	m.mu.effects.log = append(m.mu.effects.log, logLine{level, message, args})
}

type logLine struct {
	level   slog.Level
	message string
	args    []any
}
