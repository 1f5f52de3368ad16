// Package handlertest tests a handler against what production does to it: keys merge and are handed out
// again, caches lag, the process crashes. A handler may rely on little: a key comes at least once after its
// last change, in any order. A correct handler reaches the same final state every time. (Whether a queue is
// right, package [github.com/keyedqueue/workqueue/workqueuetest] tests.)
//
//	func TestSets(t *testing.T) {
//		handlertest.Converges(t, func(s *handlertest.Scenario[string]) {
//			sets := handlertest.NewWorld[string, Set](s, "sets", nil)
//			sets.Set("web", Set{Replicas: 2})
//			s.At(time.Second, func() { sets.Set("web", Set{Replicas: 3}) })
//			s.Start = func(p *handlertest.Process) worker.Handler[string] {
//				c := &controller{sets: sets.Client(p)}
//				return c.handle
//			}
//		})
//	}
//
// # What happens in a run
//
// A [World] holds the truth. Handlers write to it through a [Client], and read from it or from the cache of
// their process. The cache shows changes later, in their order, and adds keys to the queue when it does, as
// an informer does: undisturbed, 1 ms after the write, and before what else happens at that moment. A
// [worker.Pool] runs the handler over a real queue, so the handler may return any answer of package worker
// but Fatal, which fails the run. All of it is in a bubble of testing/synctest, where time is virtual.
//
// [Converges] runs the scenario once undisturbed. That run must come to rest, and its outcome is what all
// other runs must come to. [Fault] lists what happens in these: the process crashes, its cache lags or lists
// anew, calls take longer or fail, adds come late or once more.
//
// # A failure
//
// The report has the difference, the story of the run in virtual time, and the line that repeats the run. The
// schedule in it, such as
//
//	crash#1=1s lag:pods#2=3ms slow:web#3=100ms
//
// is the shortest that was found. It says that the process crashes at its first possible point and is down
// for a second, that the cache shows the second change of the pods 3 ms late, and that the third step of the
// calls for web takes 100 ms longer. A step is the beginning of a call, or a call of a client.
//
// # What the handler must not do
//
// A run depends on its schedule alone if the handler and the scenario do not use real time, random numbers,
// the order of a map, or memory that was not made in the function of Converges. Virtual time differs from run
// to run: an outcome must not have it. Goroutines that the handler starts take part if they wait on timers,
// channels or contexts; a run does not wait for a sleep longer than [Scenario].Settle.
//
// A handler that waits for something that never happens is reported. One that computes forever is not: go
// test ends it when its time is over, and the output has the schedule. So it is when a goroutine waits for
// a sync.Mutex, RWMutex or Once that another one holds during a call of a client, because testing/synctest
// cannot see such a wait. Do not hold a mutex during a call of a client.
//
// # Other worlds
//
// A program with a world of its own, such as files, makes its fakes tell the run what happens:
// [Process.Write], [Process.Read], [Process.Show] and [Process.Point]. Package
// [github.com/keyedqueue/workqueue/handlertest/kubetest] has a Kubernetes cluster as the world.
// docs/testing-handlers.md has more.
package handlertest
