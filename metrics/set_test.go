package metrics

import (
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keyedqueue/workqueue/internal/testkit"
)

// numbers come from a source. Its pointers stay shared, as those to histograms do.
type numbers struct {
	n     int
	all   *[]int
	ended bool
}

func newCountingSet() *Set[numbers] {
	return newSet(
		func(sum *numbers, part numbers) {
			sum.n += part.n
			if part.all != nil {
				all := *part.all
				if sum.all != nil {
					all = append(slices.Clone(*sum.all), all...)
				}
				sum.all = &all
			}
		},
		func(n *numbers) bool {
			ended := n.ended
			n.ended = false
			return ended
		})
}

func counting(n numbers) func() numbers { return func() numbers { return n } }

func wantTotals(t *testing.T, s *Set[numbers], want ...Total[numbers]) {
	t.Helper()
	if got := slices.Collect(s.All()); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// Names are sorted, those that are not UTF-8 are replaced, and each has the sum of its own sources, also of
// those that have ended.
func TestTotals(t *testing.T) {
	s := newCountingSet()
	for n, name := range []string{"b", "\xff", "a", "b", "ended", "a"} {
		s.Watch(name, counting(numbers{n: n, ended: name == "ended" || n == 5}))
	}
	for range 3 {
		wantTotals(t, s,
			Total[numbers]{Name: "a", Live: true, Sum: numbers{n: 2 + 5}},
			Total[numbers]{Name: "b", Live: true, Sum: numbers{n: 0 + 3}},
			Total[numbers]{Name: "ended", Sum: numbers{n: 4}},
			Total[numbers]{Name: "\uFFFD", Live: true, Sum: numbers{n: 1}})
	}
	s.Watch("ended", counting(numbers{n: 10}))
	if got := slices.Collect(s.All())[2]; !got.Live || got.Sum.n != 14 {
		t.Errorf("a name that ended, and has a new counting: %+v", got)
	}
	for range s.All() {
		break
	}
}

// Sources that end while nothing reads the set do not pile up, and each is read once.
func TestSweep(t *testing.T) {
	s := newCountingSet()
	const n = 5000
	var reads atomic.Int64
	var garbage testkit.Garbage
	for range n {
		queue := garbage.Object()
		s.Watch("q", func() numbers {
			reads.Add(1)
			return numbers{n: len(queue[:]), ended: true}
		})
	}
	garbage.Want(t, "without a reader", n/2)
	wantTotals(t, s, Total[numbers]{Name: "q", Sum: numbers{n: n * len(testkit.Object{})}})
	if got := reads.Load(); got != n {
		t.Errorf("%d readings of %d sources that have ended", got, n)
	}
}

// What All has yielded stays as it is when a later call adds a counting that has ended meanwhile.
func TestYieldedSumsStay(t *testing.T) {
	s := newCountingSet()
	var sums []numbers
	for n := range 5 {
		s.Watch("q", counting(numbers{all: &[]int{n}, ended: true}))
		sums = append(sums, slices.Collect(s.All())[0].Sum)
	}
	for n, sum := range sums {
		if got := *sum.all; !slices.Equal(got, []int{0, 1, 2, 3, 4}[:n+1]) {
			t.Errorf("sum %d has become %v", n, got)
		}
	}
}

// Many goroutines may read and add sources at once. The race detector looks on.
func TestConcurrent(t *testing.T) {
	s := newCountingSet()
	const goroutines, sources = 4, 200
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for i := range sources {
				s.Watch("q", counting(numbers{n: 1, ended: i%2 == 0}))
				for total := range s.All() {
					if total.Sum.n < 1 || total.Sum.n > goroutines*sources {
						t.Errorf("the sum is %d", total.Sum.n)
					}
				}
			}
		})
	}
	all.Wait()
	wantTotals(t, s, Total[numbers]{Name: "q", Live: true, Sum: numbers{n: goroutines * sources}})
}
