package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue"
)

// options are the command line, checked.
type options struct {
	source, dest string // absolute, free of links
	once         bool
	workers      int
	rescan       time.Duration // 0: never
	settle       time.Duration
	maxRetries   int
	drainTimeout time.Duration
	http         string  // as it was asked for, or empty
	server       *server // listens there, nil unless http is set
}

// metrics returns the provider of metrics of the queue and the workers, or nil without a server.
func (o *options) metrics() workqueue.MetricsProvider {
	if o.server == nil {
		return nil
	}
	return o.server.page
}

var (
	errStopped = errors.New("stopped before everything was looked at")
	errDrain   = errors.New("the drain took too long")
)

// dirsync is everything between the command line and the summary: it puts the parts together, runs
// them until all is equal (with -once) or ctx ends, and drains the queue.
func dirsync(ctx context.Context, o options, rep *report) error {
	if o.server != nil {
		defer o.server.close()
	}
	if err := os.MkdirAll(o.dest, 0o755); err != nil {
		return err
	}
	src, err := openTree(o.source)
	if err != nil {
		return err
	}
	defer src.close()
	dst, err := openTree(o.dest)
	if err != nil {
		return err
	}
	defer dst.close()

	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	w := newWorkers(newQueue(o.metrics()), rep)
	w.maxRetries = o.maxRetries
	w.metrics = o.metrics()
	w.fatal = stop
	s := newSyncer(src, dst, o.settle, rep, w.add)
	w.sync = s.syncKey

	// run is where the two modes differ.
	var run func() error
	if o.once {
		w.maxLooks = o.maxRetries
		run = func() error { return w.untilIdle(ctx) }
	} else {
		watch, err := newWatcher(o.source, rep)
		if err != nil {
			return err
		}
		defer watch.close()
		s.watch = watch.watch
		run = func() error { return watch.run(ctx, s, o.rescan) }
	}

	if o.server != nil {
		o.server.serve(rep)
	}

	// The workers do not stop with ctx. They stop when the queue has been shut down and drained,
	// or when that has taken too long.
	working, giveUp := context.WithCancelCause(context.Background())
	defer giveUp(nil)
	var wg sync.WaitGroup
	wg.Go(func() { w.work(working, o.workers) })
	endProgress := func() {}
	if rep.progress {
		endProgress = rep.startProgress(ctx, w.queue.Stats)
		defer endProgress()
	}
	if !o.once {
		wg.Go(func() {
			if w.untilIdle(ctx) == nil {
				endProgress()
				rep.say("first pass done; watching for changes (Ctrl-C ends)")
			}
		})
	}

	s.list(".") // all there is, to begin with
	err = run()
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errGone):
		err = cause
	case errors.Is(err, errStopped):
		giveUp(errStopped)
	case cause != nil:
		rep.say("finishing what is queued (Ctrl-C again quits at once)")
	}
	stop(nil)

	if errors.Is(err, errStopped) {
		w.queue.ShutDown()
		wg.Wait()
		rep.merged.Store(int64(w.merged()))
		rep.sayLeft(w.left(), s.toList()) // Directories get their mode and time from the next run, too.
		return err
	}
	// No events are taken any more. What is queued and what the workers hold is still finished;
	// what waits for its time is left for the next run.
	limit, cancel := context.WithTimeout(context.Background(), o.drainTimeout)
	defer cancel()
	if w.queue.ShutDownContext(limit) != nil {
		giveUp(errDrain)
		err = errors.Join(err, errDrain)
	}
	wg.Wait()
	rep.merged.Store(int64(w.merged()))
	left := s.finishDirs(w.left())
	rep.sayLeft(left, s.toList())
	if o.once && len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("%d paths were not looked at", len(left)))
	}
	return err
}
