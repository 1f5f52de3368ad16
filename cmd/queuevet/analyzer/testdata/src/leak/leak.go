package leak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	ours "github.com/keyedqueue/workqueue"
	"k8s.io/client-go/util/workqueue"
	crpriority "sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

type controller struct {
	queue, other workqueue.TypedRateLimitingInterface[string]
	sync         func(key string) error
	events       chan string
	current      string
	inFlight     map[string]bool
}

func (c *controller) process(key string) error { return nil }

func (c *controller) never() bool {
	key, quit := c.queue.Get() // want `key from Get is not Done when the function is left at line \d+: the queue will not hand it out again`
	if quit {
		return false
	}
	if err := c.process(key); err != nil {
		c.queue.AddRateLimited(key)
		return true
	}
	c.queue.Forget(key)
	return true
}

func (c *controller) notOnError() {
	for {
		key, quit := c.queue.Get() // want `key from Get is not Done when the loop comes back here`
		if quit {
			return
		}
		if err := c.process(key); err != nil {
			fmt.Println("failed", key, err)
			c.queue.AddRateLimited(key)
			continue
		}
		c.queue.Forget(key)
		c.queue.Done(key)
	}
}

func (c *controller) wrongType(queue workqueue.RateLimitingInterface) bool {
	obj, quit := queue.Get() // want `is not Done when the function is left at line \d+`
	if quit {
		return false
	}
	key, ok := obj.(string)
	if !ok {
		queue.Forget(obj)
		return true
	}
	defer queue.Done(obj)
	c.process(key)
	return true
}

func (c *controller) deferInLoop() {
	for {
		key, quit := c.queue.Get() // want `is not Done when the loop comes back here`
		if quit {
			return
		}
		defer c.queue.Done(key)
		c.process(key)
	}
}

func getContext(ctx context.Context, queue ours.Extended[string]) error {
	key, err := queue.GetContext(ctx) // want `key from GetContext is not Done`
	if err != nil {
		return err
	}
	fmt.Println(key)
	return nil
}

func priority(queue crpriority.PriorityQueue[string]) {
	key, _, shutdown := queue.GetWithPriority() // want `key from GetWithPriority is not Done`
	if shutdown {
		return
	}
	fmt.Println(key)
}

func (c *controller) onlyIfGood() bool {
	key, quit := c.queue.Get() // want `is not Done when the function is left`
	if quit {
		return false
	}
	if err := c.sync(key); err == nil {
		c.queue.Forget(key)
		c.queue.Done(key)
	} else {
		c.queue.AddRateLimited(key)
	}
	return true
}

func (c *controller) helperWithoutDone() bool {
	key, quit := c.queue.Get() // want `is not Done when the function is left`
	if quit {
		return false
	}
	c.requeue(c.process(key), key)
	return true
}

func (c *controller) requeue(err error, key string) {
	if err != nil {
		c.queue.AddRateLimited(key)
		return
	}
	c.queue.Forget(key)
}

func (c *controller) breaks(ctx context.Context) {
	for {
		key, quit := c.queue.Get() // want `is not Done when the function is left`
		if quit {
			return
		}
		if key == "last" {
			break
		}
		c.queue.Done(key)
	}
}

func (c *controller) inSwitch() {
	for {
		key, quit := c.queue.Get() // want `is not Done when the loop comes back here`
		if quit {
			return
		}
		switch err := c.sync(key); {
		case errors.Is(err, errShutDown):
			c.queue.AddRateLimited(key)
		case err != nil:
			c.queue.AddRateLimited(key)
			c.queue.Done(key)
		default:
			c.queue.Forget(key)
			c.queue.Done(key)
		}
	}
}

// From here on everything is as it should be, or cannot be judged.

func (c *controller) loop() {
	for key, quit := c.queue.Get(); !quit; key, quit = c.queue.Get() {
		c.process(key)
		c.queue.Done(key)
	}
}

func (c *controller) flag() {
	key, quit := c.queue.Get()
	if quit {
		return
	}
	finished := false
	if key == "now" {
		c.queue.Done(key)
		finished = true
	}
	if !finished {
		c.queue.Done(key)
	}
}

func (c *controller) sameCondition(fast bool) {
	key, quit := c.queue.Get()
	if quit {
		return
	}
	if fast {
		c.queue.Done(key)
	}
	fmt.Println(key)
	if !fast {
		c.queue.Done(key)
	}
}

func (c *controller) method() {
	key, quit := c.queue.Get()
	if quit {
		return
	}
	defer c.finish(key)
	c.process(key)
}

func (c *controller) finish(key string) {
	c.queue.Forget(key)
	c.queue.Done(key)
}

func (c *controller) inGroup(group *sync.WaitGroup) {
	key, quit := c.queue.Get()
	if quit {
		return
	}
	group.Go(func() { c.finish(key) })
}

func (c *controller) next() (string, bool) {
	key, quit := c.queue.Get()
	if quit {
		return "", false
	}
	return key, true
}

func (c *controller) direct() (string, bool) { return c.queue.Get() }

func (c *controller) channel() {
	key, quit := c.queue.Get()
	if quit {
		return
	}
	c.events <- key
}

func (c *controller) selected(ctx context.Context) {
	key, quit := c.queue.Get()
	if quit {
		return
	}
	select {
	case c.events <- key:
	case <-ctx.Done():
	}
}

func (c *controller) field() {
	key, quit := c.queue.Get()
	if quit {
		return
	}
	c.remember(key)
}

func (c *controller) remember(key string) { c.current = key }

func (c *controller) collect() {
	var keys []string
	for {
		key, quit := c.queue.Get()
		if quit {
			break
		}
		keys = append(keys, key)
	}
	for _, key := range keys {
		c.queue.Done(key)
	}
}

func (c *controller) exits() {
	key, quit := c.queue.Get()
	if quit {
		return
	}
	if key == "bad" {
		os.Exit(1)
	}
	if key == "worse" {
		panic("worse")
	}
	c.queue.Done(key)
}

type finisher interface{ Done(key string) }

func handler(queue workqueue.TypedInterface[string], forget workqueue.TypedRateLimitingInterface[string], f finisher, unknown func(string)) {
	for {
		key, quit := queue.Get()
		if quit {
			return
		}
		if key == "mine" {
			f.Done(key)
			forget.Forget(key)
			continue
		}
		unknown(key) // may well finish it
	}
}

func passesQueue(queue workqueue.TypedInterface[string], work func(workqueue.TypedInterface[string], string)) {
	key, quit := queue.Get()
	if quit {
		return
	}
	work(queue, key)
}

func passesOnlyQueue(queue workqueue.TypedInterface[string], finish func(workqueue.TypedInterface[string])) {
	_, quit := queue.Get()
	if quit {
		return
	}
	finish(queue)
}

func (c *controller) maybe(key string) bool {
	if key == "" {
		c.queue.Done(key)
		return true
	}
	return false
}

func (c *controller) usesMaybe() {
	key, quit := c.queue.Get()
	if quit {
		return
	}
	if c.maybe(key) {
		return
	}
	c.process(key)
	c.queue.Done(key)
}

var errShutDown = errors.New("shut down")

func generic[T comparable](queue workqueue.TypedInterface[T], f func(T)) bool {
	key, shutdown := queue.Get()
	if shutdown {
		return false
	}
	defer queue.Done(key)
	f(key)
	return true
}

func captured(queue workqueue.TypedInterface[string]) {
	var key string
	var quit bool
	use := func() { fmt.Println(key, quit) }
	key, quit = queue.Get()
	if quit {
		return
	}
	use()
	queue.Done(key)
}

func conditionalDefer(queue workqueue.TypedInterface[string]) (err error) {
	key, quit := queue.Get()
	if quit {
		return nil
	}
	handedOn := false
	defer func() {
		if !handedOn {
			queue.Done(key)
		}
	}()
	return nil
}

type embedded struct {
	workqueue.TypedRateLimitingInterface[string]
}

func (e *embedded) work() {
	key, quit := e.Get()
	if quit {
		return
	}
	defer e.Done(key)
}

func silenced(queue workqueue.TypedInterface[string]) {
	//queuevet:ignore the process ends
	key, _ := queue.Get()
	fmt.Println(key)
}

func passesResults(c *controller) {
	for c.work(c.queue.Get()) {
	}
}

func (c *controller) work(key string, quit bool) bool {
	if quit {
		return false
	}
	defer c.queue.Done(key)
	return true
}

func drain(queue workqueue.TypedInterface[string]) {
	queue.ShutDown()
	for {
		if _, shutdown := queue.Get(); shutdown {
			return
		}
	}
}

type dispatcher struct {
	queue   workqueue.TypedInterface[string]
	pool    interface{ Run(f func()) }
	workers []chan string
	handler interface{ Handle(key string) }
}

func (d *dispatcher) toWorker() {
	key, quit := d.queue.Get()
	if quit {
		return
	}
	d.dispatch(key)
}

func (d *dispatcher) dispatch(key string) { d.workers[len(key)] <- key }

func (d *dispatcher) toPool() {
	key, quit := d.queue.Get()
	if quit {
		return
	}
	d.submit(key)
}

func (d *dispatcher) submit(key string) {
	d.pool.Run(func() { d.workers[0] <- key })
}

func (d *dispatcher) toHandler() {
	key, quit := d.queue.Get()
	if quit {
		return
	}
	d.handle(key)
}

func (d *dispatcher) handle(key string) {
	d.handler.Handle(key) // may well finish it
}

func (d *dispatcher) logsOnly(log interface{ Info(args ...any) }) {
	key, quit := d.queue.Get() // want `key from Get is not Done`
	if quit {
		return
	}
	log.Info("got", key)
}

func variadic[S ~[]string](queue workqueue.TypedInterface[string], s S, f func(...string)) {
	key, quit := queue.Get()
	if quit {
		return
	}
	f(s...)
	defer queue.Done(key)
	_ = append(s, key)
}

// What follows is wrong, but it takes more than this analyzer knows to be certain.

func (c *controller) inClosure() bool {
	key, quit := c.queue.Get()
	if quit {
		return false
	}
	err := func() error {
		if key == "" {
			return nil
		}
		defer c.queue.Done(key)
		return c.process(key)
	}()
	return err == nil
}

func (c *controller) otherQueue() {
	key, _ := c.queue.Get()
	c.other.Done(key)
}

func withHandler(queue ours.TypedRateLimitingInterface[string], handler func(string) error) {
	for {
		key, shutdown := queue.Get()
		if shutdown {
			return
		}
		if err := handler(key); err != nil {
			queue.AddRateLimited(key)
			continue
		}
		queue.Forget(key)
	}
}

func bytes(queue workqueue.TypedInterface[string], other string) {
	key, quit := queue.Get()
	if quit {
		return
	}
	var b []byte
	b = append(b, other...)
	all := func(keys ...string) {}
	all([]string{string(b), key}...)
}
