package sharding

import (
	"fmt"
	"maps"
	"time"
)

// How long to wait after a listing has failed: at first, and at most.
const firstListDelay, lastListDelay = 100 * time.Millisecond, 5 * time.Second

// unlistedSlot is a slot whose keys are to be listed. A slot that is lost and comes back gets a new one, so
// that a listing that began before does not count.
type unlistedSlot struct{ since time.Duration }

// listLoop adds the keys of slots that have begun to serve: before that, the queue dropped them. Each queue
// has its own loop, which runs while slots are not listed. It shares mu.unlisted, under the queue's mu, with
// listLater, by which the member's other loops say which slots have begun to serve.
func (q *queue[T]) listLoop() {
	delay := firstListDelay
	var failures failureCount
	for {
		slots := q.nextListing()
		if slots == nil {
			return
		}
		keys, err := q.listKeys(q.member.ctx)
		if keys == nil {
			keys = func(func(T) bool) {} // An empty sequence may be nil, as an empty slice may.
		}
		for key := range keys {
			slot := q.slotOf(key)
			if _, ok := slots[slot]; ok && q.member.state(slot) == serving {
				q.add(key, q.listPriority)
			}
		}
		q.noteListed(slots, err)
		if err == nil {
			delay = firstListDelay
			continue
		}
		q.member.logFailure(&failures, "Cannot list the keys of new slots yet",
			fmt.Errorf("queue %q: %w", q.name, err))
		_ = q.member.sleep(q.member.ctx, delay, nil)
		delay = min(2*delay, lastListDelay)
	}
}

// listLater makes listLoop list the keys of slots that are serving now, and does not block.
func (q *queue[T]) listLater(slots []int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, slot := range slots {
		q.mu.unlisted[slot] = &unlistedSlot{q.member.now()}
	}
	if len(q.mu.unlisted) > 0 && !q.mu.listing {
		q.mu.listing = true
		go q.listLoop()
	}
}

// nextListing returns the slots to list, or nil if the goroutine is to end.
func (q *queue[T]) nextListing() map[int]*unlistedSlot {
	ended := q.member.ctx.Err() != nil || q.ShuttingDown()
	q.mu.Lock()
	defer q.mu.Unlock()
	if ended {
		clear(q.mu.unlisted) // Nobody lists them any more: they must not be counted as waiting.
	}
	if len(q.mu.unlisted) == 0 {
		q.mu.listing = false
		return nil
	}
	return maps.Clone(q.mu.unlisted)
}

// noteListed notes that these slots are listed, unless that has failed or they have come anew, or have moved.
func (q *queue[T]) noteListed(slots map[int]*unlistedSlot, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.listError = err
	for slot, listed := range slots {
		if q.mu.unlisted[slot] == listed && (err == nil || q.member.state(slot) != serving) {
			delete(q.mu.unlisted, slot)
		}
	}
}

func (q *queue[T]) Unlisted() (slots int, age time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for slot, u := range q.mu.unlisted {
		if q.member.state(slot) == serving {
			slots, age = slots+1, max(age, q.member.now()-u.since)
		}
	}
	return slots, age
}
