package debug

import (
	"fmt"
	"math"
	"sync"

	"github.com/keyedqueue/workqueue"
)

// entry is a registered queue, without the type of its keys.
type entry struct {
	id, name string
	// stats and keys ask the queue, which may be somebody else's and panic.
	stats func() workqueue.Stats
	keys  func(limit int) keyLists
	depth history
}

// reading is what a queue said of itself.
type reading struct {
	entry *entry
	stats workqueue.Stats
	err   string
}

func (e *entry) read() (s workqueue.Stats, err string) {
	defer recovered(&err)
	return e.stats(), ""
}

func (e *entry) readKeys(limit int) (k keyLists, err string) {
	defer recovered(&err)
	return e.keys(limit), ""
}

// recovered is deferred where code runs that is not ours. It tells the type of what that panicked with, as
// the value may have methods that panic as well.
func recovered(err *string) {
	if r := recover(); r != nil {
		*err = fmt.Sprintf("The queue panicked with a %T.", r)
	}
}

// historyLen is the number of samples that are kept.
const historyLen = 120

// history has the last samples of a number.
type history struct {
	mu      sync.Mutex // guards what follows
	samples []uint32
	// next is where the next sample goes, once there are historyLen.
	next int
}

func (h *history) add(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	sample := sampleOf(n)
	if len(h.samples) < historyLen {
		h.samples = append(h.samples, sample)
		return
	}
	h.samples[h.next] = sample
	h.next = (h.next + 1) % historyLen
}

// all returns the samples, the oldest first, and then now.
func (h *history) all(now int) []uint32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]uint32, 0, len(h.samples)+1)
	all = append(all, h.samples[h.next:]...)
	all = append(all, h.samples[:h.next]...)
	return append(all, sampleOf(now))
}

func sampleOf(n int) uint32 { return uint32(min(max(int64(n), 0), math.MaxUint32)) }
