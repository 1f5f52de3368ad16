package leak

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	ours "github.com/keyedqueue/workqueue"
	"k8s.io/client-go/util/workqueue"
	crpriority "sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// Loops that are right, as they are found in programs. None of them may be reported.

// The loop of client-go's example.
func (c *controller) processNextItem() bool {
	key, quit := c.queue.Get()
	if quit {
		return false
	}
	defer c.queue.Done(key)
	err := c.sync(key)
	c.handleErr(err, key)
	return true
}

func (c *controller) handleErr(err error, key string) {
	if err == nil {
		c.queue.Forget(key)
		return
	}
	if c.queue.NumRequeues(key) < 5 {
		c.queue.AddRateLimited(key)
		return
	}
	c.queue.Forget(key)
}

// The loop of sample-controller before generics.
func oldSample(queue workqueue.RateLimitingInterface, handler func(string) error) bool {
	obj, shutdown := queue.Get()
	if shutdown {
		return false
	}
	err := func(obj interface{}) error {
		defer queue.Done(obj)
		key, ok := obj.(string)
		if !ok {
			queue.Forget(obj)
			return nil
		}
		if err := handler(key); err != nil {
			queue.AddRateLimited(key)
			return fmt.Errorf("error syncing %s: %w", key, err)
		}
		queue.Forget(obj)
		return nil
	}(obj)
	if err != nil {
		log.Print(err)
	}
	return true
}

func doneOnEveryBranch(queue workqueue.TypedRateLimitingInterface[string], handler func(string) error) {
	for {
		key, quit := queue.Get()
		if quit {
			return
		}
		switch err := handler(key); {
		case err == nil:
			queue.Forget(key)
			queue.Done(key)
		case errors.Is(err, context.Canceled):
			queue.Done(key)
			return
		default:
			queue.AddRateLimited(key)
			queue.Done(key)
		}
	}
}

func doneBeforeErrors(queue workqueue.TypedRateLimitingInterface[string], handler func(string) error) {
	for {
		key, quit := queue.Get()
		if quit {
			break
		}
		err := handler(key)
		queue.Done(key)
		if err != nil {
			queue.AddRateLimited(key)
			continue
		}
		queue.Forget(key)
	}
}

func whileNotQuit(queue workqueue.TypedInterface[string], handler func(string)) {
	for {
		if key, quit := queue.Get(); !quit {
			handler(key)
			queue.Done(key)
		} else {
			return
		}
	}
}

func namedResults(queue workqueue.TypedInterface[string]) (key string, quit bool) {
	key, quit = queue.Get()
	return
}

func errorsAs(ctx context.Context, queue ours.Extended[string]) error {
	for {
		key, err := queue.GetContext(ctx)
		switch {
		case errors.Is(err, errShutDown):
			return nil
		case err != nil:
			return err
		}
		fmt.Println(key)
		queue.Done(key)
	}
}

func doneValue(queue workqueue.TypedInterface[string], handler func(string, func(string))) {
	done := queue.Done
	key, quit := queue.Get()
	if quit {
		return
	}
	handler(key, done)
}

func doneByVariable(queue workqueue.TypedInterface[string]) {
	done := func(key string) { queue.Done(key) }
	for {
		key, quit := queue.Get()
		if quit {
			return
		}
		if key == "" {
			done(key)
			continue
		}
		fmt.Println(key)
		queue.Done(key)
	}
}

func workersWithSemaphore(ctx context.Context, queue workqueue.TypedInterface[string], handler func(context.Context, string) error) {
	var all sync.WaitGroup
	slots := make(chan struct{}, 4)
	for {
		key, quit := queue.Get()
		if quit {
			break
		}
		slots <- struct{}{}
		all.Add(1)
		go func(key string) {
			defer func() { <-slots; all.Done(); queue.Done(key) }()
			if err := handler(ctx, key); err != nil {
				log.Print(err)
			}
		}(key)
	}
	all.Wait()
}

type job struct {
	key   string
	queue workqueue.TypedInterface[string]
}

func jobs(queue workqueue.TypedInterface[string], out chan<- job) {
	for {
		key, quit := queue.Get()
		if quit {
			close(out)
			return
		}
		out <- job{key, queue}
	}
}

type pool interface {
	Submit(key string) error
	Process(key string) error
}

func submit(queue workqueue.TypedRateLimitingInterface[string], p pool) {
	for {
		key, quit := queue.Get()
		if quit {
			return
		}
		if err := p.Submit(key); err != nil {
			queue.AddRateLimited(key)
			queue.Done(key)
			continue
		}
		fmt.Println("started", key)
	}
}

func processElsewhere(queue workqueue.TypedRateLimitingInterface[string], p pool) {
	key, quit := queue.Get()
	if quit {
		return
	}
	if err := p.Process(key); err != nil { // It calls Done itself.
		queue.AddRateLimited(key)
	}
}

func afterTime(queue workqueue.TypedInterface[string]) {
	key, quit := queue.Get()
	if quit {
		return
	}
	time.AfterFunc(time.Second, func() { queue.Done(key) })
}

func recovered(queue workqueue.TypedRateLimitingInterface[string], handler func(string) error) (goOn bool) {
	key, quit := queue.Get()
	if quit {
		return false
	}
	defer func() {
		if r := recover(); r != nil {
			queue.AddRateLimited(key)
		}
		queue.Done(key)
	}()
	_ = handler(key)
	return true
}

func labelled(ctx context.Context, queue workqueue.TypedInterface[string]) {
loop:
	for {
		key, quit := queue.Get()
		switch {
		case quit:
			break loop
		case ctx.Err() != nil:
			queue.Done(key)
			break loop
		}
		queue.Done(key)
	}
}

func quitLater(queue workqueue.TypedInterface[string]) {
	key, quit := queue.Get()
	fmt.Println("got", key, quit)
	if quit {
		fmt.Println("end")
	} else {
		queue.Done(key)
	}
}

func stopVariable(ctx context.Context, queue workqueue.TypedInterface[string]) {
	for {
		key, quit := queue.Get()
		stop := quit || ctx.Err() != nil && key == ""
		if stop {
			return
		}
		queue.Done(key)
	}
}

func (c *controller) batches() {
	batch := map[string]struct{}{}
	for len(batch) < 10 {
		key, quit := c.queue.Get()
		if quit {
			break
		}
		batch[key] = struct{}{}
	}
	for key := range batch {
		c.queue.Done(key)
	}
}

func withPriority(queue crpriority.PriorityQueue[string], handler func(string) error) bool {
	key, priority, shutdown := queue.GetWithPriority()
	if shutdown {
		return false
	}
	defer queue.Done(key)
	if err := handler(key); err != nil {
		fmt.Println(priority, err)
		queue.AddRateLimited(key)
	}
	return true
}

func worker(queue workqueue.TypedInterface[string], handler func(string)) func() {
	return func() {
		for {
			key, quit := queue.Get()
			if quit {
				return
			}
			func() {
				defer queue.Done(key)
				handler(key)
			}()
		}
	}
}

func unlessHandedOn(queue workqueue.TypedInterface[string], next chan string) {
	for {
		key, quit := queue.Get()
		if quit {
			return
		}
		handed := false
		select {
		case next <- key:
			handed = true
		default:
		}
		if !handed {
			queue.Done(key)
		}
	}
}

func result(queue workqueue.TypedRateLimitingInterface[string], handler func(string) (time.Duration, error)) {
	key, quit := queue.Get()
	if quit {
		return
	}
	after, err := handler(key)
	if err != nil {
		queue.AddRateLimited(key)
	} else if after > 0 {
		queue.Forget(key)
		queue.Done(key)
		time.AfterFunc(after, func() { queue.Add(key) })
		return
	}
	queue.Done(key)
}

type wrapper struct {
	workqueue.TypedRateLimitingInterface[string]
	held sync.Map
}

func (w *wrapper) take() {
	key, quit := w.Get()
	if quit {
		return
	}
	w.held.Store(key, true)
}

func untilOneIsRight(queue workqueue.TypedInterface[string], want string) {
	for {
		key, quit := queue.Get()
		if quit {
			return
		}
		found := key == want
		queue.Done(key)
		if found {
			return
		}
	}
}

func gotoDone(queue workqueue.TypedInterface[string], check func(string) error) {
	key, quit := queue.Get()
	if quit {
		return
	}
	if check(key) != nil {
		goto done
	}
	fmt.Println(key)
done:
	queue.Done(key)
}
