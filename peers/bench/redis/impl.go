package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
	"github.com/keyedqueue/workqueue/redisqueue"
	"github.com/keyedqueue/workqueue/worker"
	"github.com/redis/go-redis/v9"
)

// impl is a queue to measure.
type impl struct {
	name string
	// run adds n distinct keys from that many goroutines, and lets as many handle them. It returns when all are
	// handled, and what ends the queue.
	run func(client redis.UniversalClient, name string, goroutines, n int) (end func(), err error)
	// fill adds n keys, and empty handles them with 64 workers.
	fill, empty func(client redis.UniversalClient, name string, n int) error
}

var impls = []impl{
	{"redisqueue", runOurs, fillOurs, emptyOurs},
	{"asynq", runAsynq(asynq.Unique(time.Hour)), fillAsynq, emptyAsynq},
}

// plainly is asynq with tasks that are not unique.
var plainly = impl{"asynq, not unique", runAsynq(), nil, nil}

// fairly is redisqueue as asynq is used: callers wait until the server has their keys, and workers handle
// them.
var fairly = impl{"redisqueue", runFairly, fillOurs, emptyOurs}

func runFairly(client redis.UniversalClient, name string, goroutines, n int) (func(), error) {
	q, err := ours(client, name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(background)
	keys, ended := newCounted(n), make(chan error, 1)
	handle := func(context.Context, string) error { keys.handled(); return nil }
	go func() { ended <- worker.Run(ctx, q, handle, worker.Options[string]{Workers: goroutines}) }()
	split(goroutines, n, func(i int) {
		if err := q.AddContext(ctx, key(i)); err != nil {
			log.Print(err)
		}
	})
	return func() { cancel(); <-ended }, keys.wait()
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func ours(client redis.UniversalClient, name string) (*redisqueue.Queue[string], error) {
	return redisqueue.New(background, client, redisqueue.Config[string]{Name: name, Logger: quiet})
}

func end(q *redisqueue.Queue[string]) error {
	ctx, cancel := context.WithTimeout(background, time.Minute)
	defer cancel()
	return q.ShutDownContext(ctx)
}

// split calls f for 0 to n-1, from that many goroutines.
func split(goroutines, n int, f func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				f(int(i))
			}
		})
	}
	all.Wait()
}

func key(i int) string { return "order/" + strconv.Itoa(1_000_000+i) }

func runOurs(client redis.UniversalClient, name string, goroutines, n int) (func(), error) {
	q, err := ours(client, name)
	if err != nil {
		return nil, err
	}
	split(goroutines, n, func(i int) {
		q.Add(key(i))
		if k, down := q.Get(); !down {
			q.Done(k)
		}
	})
	err = q.Flush(background)
	return func() { _ = end(q) }, err
}

func fillOurs(client redis.UniversalClient, name string, n int) error {
	q, err := ours(client, name)
	if err != nil {
		return err
	}
	for i := range n {
		q.Add(key(i))
	}
	return end(q)
}

func emptyOurs(client redis.UniversalClient, name string, n int) error {
	q, err := ours(client, name)
	if err != nil {
		return err
	}
	split(64, n, func(int) {
		if k, down := q.Get(); !down {
			q.Done(k)
		}
	})
	return end(q)
}

// counted counts keys and closes done when all are handled.
type counted struct {
	left atomic.Int64
	done chan struct{}
}

func newCounted(n int) *counted {
	c := &counted{done: make(chan struct{})}
	c.left.Store(int64(n))
	return c
}

func (c *counted) wait() error {
	select {
	case <-c.done:
		return nil
	case <-time.After(10 * time.Minute):
		return fmt.Errorf("%d keys are not handled after ten minutes", c.left.Load())
	}
}

func (c *counted) handled() {
	if c.left.Add(-1) == 0 {
		close(c.done)
	}
}

// ProcessTask makes it an asynq.Handler.
func (c *counted) ProcessTask(context.Context, *asynq.Task) error { c.handled(); return nil }

func asynqServer(client redis.UniversalClient, name string, workers int,
	interval time.Duration) *asynq.Server {
	return asynq.NewServerFromRedisClient(client, asynq.Config{
		Queues: map[string]int{name: 1}, Concurrency: workers, TaskCheckInterval: interval,
		LogLevel: asynq.FatalLevel,
	})
}

func enqueue(c *asynq.Client, name string, i int, options ...asynq.Option) {
	if _, err := c.Enqueue(asynq.NewTask("t", []byte(key(i))),
		append(options, asynq.Queue(name))...); err != nil {
		log.Print(err)
	}
}

// startAsynq starts a server that handles n tasks.
func startAsynq(client redis.UniversalClient, name string, workers, n int) (*asynq.Server, *counted, error) {
	s, tasks := asynqServer(client, name, workers, 10*time.Millisecond), newCounted(n)
	return s, tasks, s.Start(tasks)
}

func runAsynq(options ...asynq.Option) func(redis.UniversalClient, string, int, int) (func(), error) {
	return func(client redis.UniversalClient, name string, goroutines, n int) (func(), error) {
		s, tasks, err := startAsynq(client, name, goroutines, n)
		if err != nil {
			return nil, err
		}
		c := asynq.NewClientFromRedisClient(client)
		split(goroutines, n, func(i int) { enqueue(c, name, i, options...) })
		return s.Shutdown, tasks.wait()
	}
}

func fillAsynq(client redis.UniversalClient, name string, n int) error {
	c := asynq.NewClientFromRedisClient(client)
	split(64, n, func(i int) { enqueue(c, name, i, asynq.Unique(time.Hour)) })
	return nil
}

func emptyAsynq(client redis.UniversalClient, name string, n int) error {
	s, tasks, err := startAsynq(client, name, 64, n)
	if err != nil {
		return err
	}
	defer func() { go s.Shutdown() }() // It takes a while, which is not to be measured.
	return tasks.wait()
}

// cost is what keys took.
type cost struct{ keysPerSecond, callsPerKey, serverCPU, clientCPU float64 }

var runs atomic.Int64

func cycle(s *server, im impl, goroutines, n int) (cost, error) {
	client := s.client(goroutines)
	var calls counter
	client.AddHook(&calls)
	defer client.Close()
	if err := s.flush(); err != nil {
		return cost{}, err
	}
	runtime.GC()
	serverBefore, clientBefore := s.cpu(), clientCPU()
	began := time.Now()
	end, err := im.run(client, fmt.Sprint("run", runs.Add(1)), goroutines, n)
	d := time.Since(began)
	perKey := 1 / float64(n)
	c := cost{
		keysPerSecond: float64(n) / d.Seconds(),
		callsPerKey:   float64(calls.n.Load()) * perKey,
		serverCPU:     (s.cpu() - serverBefore).Seconds() * 1e6 * perKey,
		clientCPU:     (clientCPU() - clientBefore).Seconds() * 1e6 * perKey,
	}
	if end != nil {
		end()
	}
	return c, err
}

func drain(s *server, im impl, n int) (keysPerSecond, bytesPerKey float64, err error) {
	client := s.client(64)
	defer func() { time.AfterFunc(10*time.Second, func() { client.Close() }) }()
	if err := s.flush(); err != nil {
		return 0, 0, err
	}
	before := s.memory()
	name := fmt.Sprint("drain", runs.Add(1))
	if err := im.fill(client, name, n); err != nil {
		return 0, 0, err
	}
	bytesPerKey = float64(s.memory()-before) / float64(n)
	began := time.Now()
	if err := im.empty(client, name, n); err != nil {
		return 0, 0, err
	}
	return float64(n) / time.Since(began).Seconds(), bytesPerKey, nil
}

// counter counts calls of the server; a pipeline is one.
type counter struct{ n atomic.Int64 }

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmds)
	}
}

func clientCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
