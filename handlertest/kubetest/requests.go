package kubetest

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// requests is the queue of a controller: what its sources add goes to the queue of the process, whose workers
// call the reconciler.
type requests struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request] // the queue of the process, as client-go's

	done   <-chan struct{} // of the process
	wanted chan struct{}   // closed when the controller wants requests, because its caches have synced
	once   func()

	mu         sync.Mutex
	collecting bool
	collected  []add
}

// add is an Add or, with a time, an AddAfter.
type add struct {
	request reconcile.Request
	after   time.Duration
}

func newRequests(queue workqueue.TypedRateLimitingInterface[reconcile.Request], done <-chan struct{}) *requests {
	q := &requests{TypedRateLimitingInterface: queue, done: done, wanted: make(chan struct{}), collecting: true}
	q.once = sync.OnceFunc(func() { close(q.wanted) })
	return q
}

// asQueue is for the field NewQueue of a controller.
func (q *requests) asQueue(string,
	workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return q
}

// collect keeps what is added until flush: which of several sources adds first depends on the scheduler of
// Go, and so does whether a second add of a request merges with the first.
func (q *requests) collect() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.collecting = true
}

func (q *requests) isCollecting() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.collecting
}

func (q *requests) flush() {
	q.mu.Lock()
	all := q.collected
	q.collecting, q.collected = false, nil
	q.mu.Unlock()
	slices.SortFunc(all, func(a, b add) int {
		return cmp.Or(cmp.Compare(a.after, b.after), cmp.Compare(a.request.String(), b.request.String()))
	})
	for _, a := range slices.Compact(all) {
		q.add(a)
	}
}

func (q *requests) Add(request reconcile.Request) { q.AddAfter(request, 0) }

func (q *requests) AddAfter(request reconcile.Request, d time.Duration) {
	q.mu.Lock()
	collecting := q.collecting
	if collecting {
		q.collected = append(q.collected, add{request, max(d, 0)})
	}
	q.mu.Unlock()
	if !collecting {
		q.add(add{request, d})
	}
}

func (q *requests) add(a add) {
	if a.after <= 0 {
		q.TypedRateLimitingInterface.Add(a.request)
	} else {
		q.TypedRateLimitingInterface.AddAfter(a.request, a.after)
	}
}

// Get gives the controller nothing.
func (q *requests) Get() (request reconcile.Request, shutdown bool) {
	q.once()
	<-q.done
	return request, true
}

// ShutDown does nothing: the queue is the process's.
func (q *requests) ShutDown() {}
