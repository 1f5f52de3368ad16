package sharding

import (
	"maps"
	"time"
)

// How long to wait after a listing has failed: at first, and at most.
const firstListDelay, lastListDelay = 100 * time.Millisecond, 5 * time.Second

// list makes the queue list the keys of slots that the member has got, or that stay although the contexts of
// their handlers have ended, in a goroutine.
func (q *queue[T]) list(slots []int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, slot := range slots {
		q.mu.unlisted[slot] = q.member.now()
	}
	if len(q.mu.unlisted) > 0 && !q.mu.listing {
		q.mu.listing = true
		go q.listLoop()
	}
}

// listLoop lists until all slots are listed.
func (q *queue[T]) listLoop() {
	delay := firstListDelay
	for {
		slots := q.nextListing()
		if slots == nil {
			return
		}
		keys, err := q.keys(q.member.ctx)
		if keys == nil {
			keys = func(func(T) bool) {} // An empty sequence may be nil, as an empty slice may.
		}
		for key := range keys {
			slot := q.slotOf(key)
			if _, ok := slots[slot]; ok && q.member.state(slot) != absent {
				q.add(key, q.listPriority)
			}
		}
		q.mu.Lock()
		q.mu.listError = err
		q.mu.Unlock()
		if err == nil {
			delay = firstListDelay
			continue
		}
		if q.member.ctx.Err() == nil {
			q.member.logger.Warn("Cannot list the keys of new slots yet",
				"slots", len(slots), "retry_in", delay, "err", err)
		}
		q.relist(slots)
		_ = q.member.sleep(q.member.ctx, delay, nil)
		delay = min(2*delay, lastListDelay)
	}
}

// nextListing returns the slots to list, or nil if the goroutine is to end.
func (q *queue[T]) nextListing() map[int]time.Duration {
	ended := q.member.ctx.Err() != nil || q.ShuttingDown()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.listed = nil
	if ended || len(q.mu.unlisted) == 0 {
		q.mu.listing = false
		return nil
	}
	q.mu.listed, q.mu.unlisted = q.mu.unlisted, make(map[int]time.Duration)
	return q.mu.listed
}

// relist makes slots unlisted again, without those that have moved.
func (q *queue[T]) relist(slots map[int]time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for slot, since := range slots {
		if q.member.state(slot) != absent {
			q.mu.unlisted[slot] = since
		}
	}
	q.mu.listed = nil
}

func (q *queue[T]) Unlisted() (slots int, age time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := maps.Clone(q.mu.unlisted)
	maps.Copy(waiting, q.mu.listed)
	for slot, since := range waiting {
		if q.member.state(slot) != absent {
			slots, age = slots+1, max(age, q.member.now()-since)
		}
	}
	return slots, age
}
