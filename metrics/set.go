package metrics

import (
	"iter"
	"slices"
	"strings"
	"sync"
)

// Set has the sources of numbers S, such as queues, and adds up those with the same name. It drops a source
// that has ended, and keeps what it counted, so that no sum of a counter falls. It is safe for concurrent
// use.
type Set[S any] struct {
	add func(sum *S, part S)
	end func(*S) bool

	mu     sync.Mutex // guards what follows
	byName map[string]*group[S]
	// sorted has the groups in the order of their names, or is nil after a new name.
	sorted []*group[S]
}

// newSet returns an empty set. The function add adds part to sum, and must not change what the pointers in
// either point to. The function end reports whether the numbers of a source will not change any more. It may
// remove from them what must not stay in the sum.
func newSet[S any](add func(sum *S, part S), end func(*S) bool) *Set[S] {
	return &Set[S]{add: add, end: end, byName: map[string]*group[S]{}}
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

	// reading is locked while the sources are read, before mu. It guards ended, the sum of those that have
	// ended.
	reading sync.Mutex
	ended   S

	// mu guards what follows. No source is called under it, so Watch never waits for one.
	mu      sync.Mutex
	sources []*source[S]
	// sweepAt is the number of sources at which Watch looks for those that have ended.
	sweepAt int
}

type source[S any] struct {
	read  func() S
	ended bool // guarded by the group's reading
}

// minSweep is the number of sources of one name that may pile up without being read.
const minSweep = 64

// Watch adds a source, which is read by that function, to those of that name. It takes constant time and does
// not call read. What is not UTF-8 in the name is replaced, because Prometheus and OpenTelemetry refuse it.
func (s *Set[S]) Watch(name string, read func() S) {
	g := s.group(strings.ToValidUTF8(name, "\uFFFD"))
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sources = append(g.sources, &source[S]{read: read})
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
		g = &group[S]{name: name, sweepAt: minSweep}
		s.byName[name] = g
		s.sorted = nil
	}
	return g
}

// All reads all sources, one name after the other in the order of the names, and yields their sums.
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

// reading has the numbers that read works with. As variables of read they would be allocated anew for every
// name.
type reading[S any] struct{ sum, ended, part S }

// read reads the sources of g, and sets r.sum to their sum. It reports whether one of them has not ended.
func (s *Set[S]) read(g *group[S], r *reading[S]) (live bool) {
	g.reading.Lock()
	defer g.reading.Unlock()
	g.mu.Lock()
	sources := g.sources // Watch only appends to it meanwhile.
	g.mu.Unlock()

	*r = reading[S]{ended: g.ended}
	for _, src := range sources {
		r.part = src.read()
		if src.ended = s.end(&r.part); src.ended {
			s.add(&r.ended, r.part)
		} else {
			s.add(&r.sum, r.part)
			live = true
		}
	}
	s.add(&r.sum, r.ended)
	g.ended = r.ended
	g.dropEnded()
	return live
}

// dropEnded drops the sources that have ended. The caller has locked reading.
func (g *group[S]) dropEnded() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sources = slices.DeleteFunc(g.sources, func(src *source[S]) bool { return src.ended })
	g.sweepAt = max(minSweep, 2*len(g.sources))
}
