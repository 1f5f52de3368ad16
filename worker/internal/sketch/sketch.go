// Package sketch counts which keys come most often, in bounded memory.
package sketch

import (
	"time"

	"github.com/keyedqueue/workqueue"
)

const (
	// Minutes is for how long a key counts.
	Minutes = 10
	// MaxKeys is how many keys of a minute have a count.
	MaxKeys = 100
)

// Counts counts keys in the last ten minutes, and has the causes of some. For each minute it has a
// space-saving sketch: counts of a hundred keys, where a new key takes over the count of the rarest one. So
// in a minute with n adds no key is counted more than n/100 too high, and a key without a count came at most
// n/100 times.
//
// The zero Counts is ready to use. It is not safe for concurrent use.
type Counts[K comparable] struct{ minutes [Minutes]minute[K] }

type minute[K comparable] struct {
	number int64 // since 1970
	total  uint64
	counts map[K]Count
}

// Count is how often a key came, and the last causes that were set for it.
type Count struct {
	N      uint64
	Causes workqueue.Causes
}

func numberOf(t time.Time) int64 { return t.Unix() / 60 }

// minute returns the place of that minute, which may still have an earlier one. A fake clock may show a time
// before 1970.
func (c *Counts[K]) minute(number int64) *minute[K] {
	return &c.minutes[uint64(number)%Minutes]
}

// Add counts key, and returns its count in that minute.
func (c *Counts[K]) Add(key K, at time.Time) uint64 {
	n := numberOf(at)
	m := c.minute(n)
	if m.number != n || m.counts == nil {
		*m = minute[K]{number: n, counts: make(map[K]Count)}
	}
	m.total++
	count, found := m.counts[key]
	if !found && len(m.counts) == MaxKeys {
		count.N = m.dropRarest()
	}
	count.N++
	m.counts[key] = count
	return count.N
}

// dropRarest deletes the key with the smallest count, and returns the count.
func (m *minute[K]) dropRarest() (least uint64) {
	var rarest K
	for key, c := range m.counts {
		if least == 0 || c.N < least {
			rarest, least = key, c.N
		}
	}
	delete(m.counts, rarest)
	return least
}

// SetCauses says why a key came that was counted at that time.
func (c *Counts[K]) SetCauses(key K, at time.Time, causes workqueue.Causes) {
	m := c.minute(numberOf(at))
	if count, found := m.counts[key]; found {
		count.Causes = causes
		m.counts[key] = count
	}
}

// Sum adds up the last minutes. It goes over a thousand counts at most. The total is exact.
func (c *Counts[K]) Sum(now time.Time) (sum map[K]Count, total uint64) {
	sum = make(map[K]Count)
	newest := numberOf(now)
	for n := newest - Minutes + 1; n <= newest; n++ {
		m := c.minute(n)
		if m.number != n { // Its place has another minute.
			continue
		}
		total += m.total
		for key, count := range m.counts {
			before := sum[key]
			if count.N += before.N; count.Causes.IsZero() {
				count.Causes = before.Causes
			}
			sum[key] = count
		}
	}
	return sum, total
}
