package sharding

import (
	"fmt"
	"maps"
	"slices"
)

// memberQueue is a queue of a member, as the member sees it.
type memberQueue interface {
	// handlers returns how many keys of the slot are being handled.
	handlers(slot int) int
	// listLater makes the queue list the keys of slots that are serving now, and does not block.
	listLater(slots []int)
	// nameAndHash returns the queue's name, and that of its hash.
	nameAndHash() (name, hash string)
	ShutDown()
}

// register adds a queue. The slots that are here already count as gained.
func (m *Member) register(q memberQueue) (err error) {
	m.update(func() { err = m.registerLocked(q) })
	if err != nil {
		return err
	}
	var slots []int
	for i := range m.slots {
		if m.state(i) == serving {
			slots = append(slots, i)
		}
	}
	q.listLater(slots)
	return nil
}

func (m *Member) registerLocked(q memberQueue) error {
	switch {
	case m.mu.restored:
		return ErrRestored
	case m.mu.phase >= leaving:
		return ErrLeft
	}
	name, hash := q.nameAndHash()
	all, made := m.config.Queues, m.mu.queueNames
	if slices.Contains(made, name) || !slices.Contains(all, name) && len(all)+len(made) > 0 {
		return fmt.Errorf("sharding: a queue %q beside %q: give each queue of a member a name of its own, "+
			"and Config.Queues all names", name, made)
	}
	m.mu.queueNames = append(m.mu.queueNames, name)
	m.mu.hashes = maps.Collect(maps.All(m.mu.hashes))
	m.mu.hashes[name] = hash
	if view := &m.mu.view; view.isThere() && view.unusable == nil {
		view.unusable = m.checkHashesLocked(view.table) // at once: the server's next answer may take long
	}
	signal(m.toRefresh) // The record says whether the member takes slots.
	queues := append(slices.Clone(*m.queues.Load()), q)
	m.queues.Store(&queues)
	return nil
}

// queuesIfAllLocked returns how many queues the member has, or 0 if it lacks one.
func (m *Member) queuesIfAllLocked() int {
	if len(m.lackingLocked()) > 0 {
		return 0
	}
	return len(*m.queues.Load())
}

// lackingLocked returns the names of the queues that are still to be made.
func (m *Member) lackingLocked() []string {
	isMade := func(name string) bool { return slices.Contains(m.mu.queueNames, name) }
	return slices.DeleteFunc(slices.Clone(m.config.Queues), isMade)
}

// checkHashesLocked returns an error if the members of the table hash keys in another way.
func (m *Member) checkHashesLocked(t *table) error {
	if queues := contradictions(t.hashes, m.mu.hashes); len(queues) > 0 {
		return fmt.Errorf("%w: the group hashes the keys of the queues %q in another way than this replica, "+
			"which has another type of keys or QueueConfig.HashVersion: to change that, give the group another name, "+
			"and stop all old replicas before the first new one starts", ErrIncompatible, queues)
	}
	return nil
}
