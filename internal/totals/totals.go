// Package totals adds up the numbers of all queues that have one name, for the packages that export them.
package totals

import (
	"iter"
	"slices"
	"strings"
	"sync"
)

// Set knows the sources of numbers S, such as queues, and adds up those with the same name. It forgets a source
// that has ended, and keeps what it counted, so that no sum of a counter falls. (If something can be late, the last few
// that have ended are still read.) It is safe for concurrent use.
type Set[S any] struct {
	// add adds part to sum. It must not change what the pointers in either point to.
	add func(sum *S, part S)
	// ended reports whether the numbers of a source will not change any more, apart from what late returns. It may
	// remove from them what need not be kept.
	ended func(*S) bool
	// late returns what a source that has ended has counted between two readings. It is nil if that is always nothing.
	late func(before, now S) S

	mu     sync.Mutex // guards what follows
	byName map[string]*group[S]
	// sorted has the groups in the order of their names. An array that it has once pointed to does not change.
	sorted []*group[S]
}

// Total is the sum of the sources of one name.
type Total[S any] struct {
	Name string
	// Live means that at least one of the sources has not ended.
	Live bool
	Sum  S
}

// group has the sources of one name. It stays as long as its Set.
type group[S any] struct {
	name string

	// reading is locked while the sources are read, before mu. It guards ended, the sum of those that have ended,
	// and lately, those that have ended last.
	reading sync.Mutex
	ended   S
	lately  []endedSource[S]

	// mu guards what follows. No foreign code runs under it, so Watch never waits for a source.
	mu      sync.Mutex
	sources []func() S
	// sweepAt is the number of sources at which those that have ended are looked for.
	sweepAt int
}

// endedSource is a source that has ended, and its numbers when it was read last.
type endedSource[S any] struct {
	source func() S
	last   S
}

// maxLately is how many sources of one name are still read after they have ended.
const maxLately = 16

// minSweep is the number of sources of one name that may pile up without being read.
const minSweep = 64

// Watch adds a source to those of that name. It takes constant time and does not call source. What is not UTF-8
// in the name is replaced, because Prometheus and OpenTelemetry refuse it.
func (s *Set[S]) Watch(name string, source func() S) {
	g := s.group(strings.ToValidUTF8(name, "\uFFFD"))
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sources = append(g.sources, source)
	if len(g.sources) >= g.sweepAt {
		g.sweepAt = 2 * len(g.sources)
		// In a goroutine, because the caller may hold a lock that a source needs.
		go func() { s.read(g, new(reading[S])) }()
	}
}

func (s *Set[S]) group(name string) *group[S] {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.byName[name]
	if g == nil {
		if s.byName == nil {
			s.byName = map[string]*group[S]{}
		}
		g = &group[S]{name: name, sweepAt: minSweep}
		s.byName[name] = g
		s.sorted = nil
	}
	return g
}

// All reads all sources, one name after the other in the order of the names, and yields their sums. If a source
// panics, so does All, and nothing is lost.
func (s *Set[S]) All() iter.Seq[Total[S]] {
	return func(yield func(Total[S]) bool) {
		r := new(reading[S])
		for _, g := range s.groups() {
			live := s.read(g, r)
			if !yield(Total[S]{Name: g.name, Live: live, Sum: r.sum}) {
				return
			}
		}
	}
}

func (s *Set[S]) groups() []*group[S] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sorted == nil {
		for _, g := range s.byName {
			s.sorted = append(s.sorted, g)
		}
		slices.SortFunc(s.sorted, func(a, b *group[S]) int { return strings.Compare(a.name, b.name) })
	}
	return s.sorted
}

// reading has the numbers that read works with. As variables of read they would be allocated anew for every name.
type reading[S any] struct{ sum, ended, part S }

// read reads the sources of g, and sets r.sum to their sum. It reports whether one of them has not ended.
func (s *Set[S]) read(g *group[S], r *reading[S]) (live bool) {
	g.reading.Lock()
	defer g.reading.Unlock()
	g.mu.Lock()
	sources := g.sources // Others only append to it meanwhile.
	g.mu.Unlock()

	*r = reading[S]{ended: g.ended}
	lately := slices.Clone(g.lately)
	for i, l := range lately {
		lately[i].last = l.source()
		s.add(&r.ended, s.late(l.last, lately[i].last))
	}
	var endedAt []int // their numbers in sources
	for i, source := range sources {
		r.part = source()
		if !s.ended(&r.part) {
			s.add(&r.sum, r.part)
			continue
		}
		endedAt = append(endedAt, i)
		s.add(&r.ended, r.part)
		if s.late != nil {
			lately = append(lately, endedSource[S]{source, r.part})
		}
	}
	s.add(&r.sum, r.ended)
	g.ended, g.lately = r.ended, lately[max(0, len(lately)-maxLately):]
	g.forget(endedAt)
	return len(endedAt) < len(sources)
}

// forget removes the sources with these numbers, which ascend.
func (g *group[S]) forget(numbers []int) {
	if len(numbers) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	kept := make([]func() S, 0, len(g.sources)-len(numbers))
	for i, source := range g.sources {
		if _, ended := slices.BinarySearch(numbers, i); !ended {
			kept = append(kept, source)
		}
	}
	g.sources = kept
	g.sweepAt = max(minSweep, 2*len(kept))
}
