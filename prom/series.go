package prom

import (
	"slices"
	"sync"

	"github.com/keyedqueue/workqueue"
	dto "github.com/prometheus/client_model/go"
)

// series are the metrics of one name. It stays for as long as its provider.
type series struct {
	name    string
	labels  []*dto.LabelPair
	buckets *buckets

	// reading is locked while the queues are read, one reader at a time, and before mu. It guards
	// ended: what the queues have counted that are gone.
	reading sync.Mutex
	ended   *values

	// mu guards what follows. No other code runs under it, so who holds a lock of a queue may wait for it.
	mu sync.Mutex
	// layers are the queues that count inside themselves, each layer on its own. Those that have ended are
	// nil until the reader is through; nobody else takes one out or moves it.
	layers []func() workqueue.Stats
	// watched tells that there has ever been one of them.
	watched bool
	pushed  pushed
}

// values are those of the families of one name, for as many queues as have been added.
type values struct {
	numbers               [numFamilies]float64
	latency, workDuration histogram
	priorities            priorities
}

// histogram counts times by the buckets of a provider.
type histogram struct {
	// counts is nil as long as there was nothing to add.
	counts []uint64
	sum    float64
	// shared tells that others have counts too, so that it must not be changed. Mostly there is only one
	// queue of a name, and its counts need no copy.
	shared bool
}

// add adds times of which that many are in each of the buckets. Nobody may change counts any more.
func (h *histogram) add(counts []uint64, sum float64) {
	h.sum += sum
	if h.counts == nil {
		h.counts, h.shared = counts, true
		return
	}
	if h.shared {
		h.counts, h.shared = slices.Clone(h.counts), false
	}
	for i, n := range counts {
		h.counts[i] += n
	}
}

func (h *histogram) addAll(other *histogram) {
	other.shared = true
	h.add(other.counts, other.sum)
}

func (v *values) add(f family, number float64) {
	if families[f].longest {
		v.numbers[f] = max(v.numbers[f], number)
	} else {
		v.numbers[f] += number
	}
}

// addCounters adds what of a queue only grows.
func (v *values) addCounters(st *workqueue.Stats) {
	v.add(adds, float64(st.Adds))
	v.add(retries, float64(st.Retries))
	v.add(dropped, float64(st.Dropped))
	v.add(unmatchedDones, float64(st.UnmatchedDones))
	if st.Latency != nil {
		v.latency.add(st.Latency.Counts, st.Latency.Sum)
		v.workDuration.add(st.WorkDuration.Counts, st.WorkDuration.Sum)
	}
}

func (v *values) addGauges(st *workqueue.Stats) {
	v.add(depth, float64(st.Queued+st.Again)) // what Kubernetes calls the depth
	v.priorities.add(st.ByPriority)
	v.add(waiting, float64(st.Waiting))
	v.add(unfinished, st.UnfinishedWork.Seconds())
	v.add(longestRunning, st.LongestRunning.Seconds())
	v.add(oldestQueued, st.OldestQueued.Seconds())
}

// hasEnded tells that nothing about a queue will change any more.
func hasEnded(st *workqueue.Stats) bool {
	return st.ShuttingDown && st.Queued == 0 && st.Processing == 0 && st.Waiting == 0
}

func (s *series) watch(stats func() workqueue.Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.layers = append(s.layers, stats)
	s.watched = true
}

// read returns the values of all queues of the name, the families that there are for them, and the number
// of layers that have ended since the last call.
func (s *series) read() (v *values, present familySet, ended int) {
	s.reading.Lock()
	defer s.reading.Unlock()
	s.mu.Lock()
	layers := s.layers
	if s.watched {
		present = counters
	}
	s.mu.Unlock()

	v = &values{}
	for i, stats := range layers {
		if stats == nil {
			continue // A clock has panicked when this was read the last time.
		}
		st := stats()
		if hasEnded(&st) {
			s.end(i, &st)
			ended++
			continue
		}
		present |= gauges
		v.addCounters(&st)
		v.addGauges(&st)
	}
	if ended > 0 {
		s.forgetEnded()
	}
	if s.ended != nil {
		v.addCountersOf(s.ended)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return v, present | s.pushed.addTo(v), ended
}

// end moves the counts of the layer from there to those of the ended ones.
func (s *series) end(i int, st *workqueue.Stats) {
	if s.ended == nil {
		s.ended = &values{}
	}
	s.ended.addCounters(st)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.layers[i] = nil
}

func (s *series) forgetEnded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var layers []func() workqueue.Stats
	for _, stats := range s.layers {
		if stats != nil {
			layers = append(layers, stats)
		}
	}
	s.layers = layers
}

func (v *values) addCountersOf(w *values) {
	for f := range numFamilies {
		if counters.has(f) {
			v.add(f, w.numbers[f])
		}
	}
	v.latency.addAll(&w.latency)
	v.workDuration.addAll(&w.workDuration)
}
