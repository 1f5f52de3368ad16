package kubetest

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// requests passes what the sources of controllers add on to the queue of the process, whose workers call the
// reconcilers.
type requests struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request] // the queue of the process, as client-go's

	done <-chan struct{} // of the process

	mu         sync.Mutex
	collecting bool
	collected  []add
}

// add is an AddAfter that was collected.
type add struct {
	request reconcile.Request
	after   time.Duration
}

func newRequests(queue workqueue.TypedRateLimitingInterface[reconcile.Request], done <-chan struct{}) *requests {
	return &requests{TypedRateLimitingInterface: queue, done: done, collecting: true}
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
	defer q.mu.Unlock()
	slices.SortFunc(q.collected, func(a, b add) int {
		return cmp.Or(cmp.Compare(a.after, b.after), cmp.Compare(a.request.String(), b.request.String()))
	})
	for _, a := range slices.Compact(q.collected) {
		q.TypedRateLimitingInterface.AddAfter(a.request, a.after)
	}
	q.collecting, q.collected = false, nil
}

// addAfter adds a request, or collects it.
func (q *requests) addAfter(request reconcile.Request, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.collecting {
		q.collected = append(q.collected, add{request, max(d, 0)})
	} else {
		q.TypedRateLimitingInterface.AddAfter(request, d)
	}
}

// controllerQueue is the queue of one controller.
type controllerQueue struct {
	*requests
	prefix string        // of its requests' namespaces
	wanted chan struct{} // closed when the controller wants requests, because its caches have synced
	once   sync.Once
}

// prefixEnd ends a prefix. No namespace has it.
const prefixEnd = ":"

func (q *controllerQueue) prefixed(request reconcile.Request) reconcile.Request {
	if q.prefix != "" {
		request.Namespace = q.prefix + prefixEnd + request.Namespace
	}
	return request
}

func (q *controllerQueue) Add(request reconcile.Request) { q.addAfter(q.prefixed(request), 0) }

func (q *controllerQueue) AddAfter(request reconcile.Request, d time.Duration) {
	q.addAfter(q.prefixed(request), d)
}

func (q *controllerQueue) AddRateLimited(request reconcile.Request) {
	q.requests.AddRateLimited(q.prefixed(request))
}

// Get gives the controller nothing.
func (q *controllerQueue) Get() (request reconcile.Request, shutdown bool) {
	q.once.Do(func() { close(q.wanted) })
	<-q.done
	return request, true
}

// ShutDown does nothing: the queue is the process's.
func (q *controllerQueue) ShutDown() {}
