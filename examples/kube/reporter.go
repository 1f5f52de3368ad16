package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// reporter knows when the containers of Pods have restarted, and prints a line when that is too often.
type reporter struct {
	lister  corelisters.PodLister
	options options

	mu  sync.Mutex // guards what follows
	out io.Writer
	// pods has the history of every Pod that exists. A history itself needs no lock: the queue gives
	// its key to one worker at a time.
	pods map[cache.ObjectName]*history
}

// history is what was seen of a Pod.
type history struct {
	uid types.UID
	// seen are the sums of restarts and when they were first seen, oldest first. The first one is the
	// last from before the time that counts, so the restarts in that time are the last minus the first.
	seen     []sum
	reported int // the sum when the last line was printed
}

type sum struct {
	restarts int
	at       time.Time
}

func newReporter(lister corelisters.PodLister, o options, out io.Writer) *reporter {
	return &reporter{lister: lister, options: o, out: out, pods: make(map[cache.ObjectName]*history)}
}

// look is the handler: it compares what there is with what was seen.
func (r *reporter) look(ctx context.Context, key cache.ObjectName) error {
	pod, err := r.lister.Pods(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		r.forget(key)
		return nil
	}
	if err != nil {
		return err
	}
	h := r.history(key)
	restarts := restartsOf(pod)
	if h.uid != pod.UID || h.seen == nil {
		// Another Pod of the same name, or one that we have never seen.
		*h = history{uid: pod.UID, seen: []sum{{restarts: restarts}}}
	}
	now := time.Now()
	if restarts > h.seen[len(h.seen)-1].restarts {
		h.seen = append(h.seen, sum{restarts, now})
	}
	for len(h.seen) > 1 && now.Sub(h.seen[1].at) > r.options.within {
		h.seen = h.seen[1:]
	}
	n := restarts - h.seen[0].restarts
	if n < r.options.restarts || restarts <= h.reported {
		return nil
	}
	h.reported = restarts
	return r.print("%s: %d restarts within %v: %s\n", key, n, r.options.within, strings.Join(troubles(pod), ", "))
}

func (r *reporter) history(key cache.ObjectName) *history {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.pods[key]
	if h == nil {
		h = new(history)
		r.pods[key] = h
	}
	return h
}

func (r *reporter) forget(key cache.ObjectName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pods, key)
}

func (r *reporter) print(format string, args ...any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := fmt.Fprintf(r.out, format, args...)
	return err
}

// containersOf returns the states of all containers of a Pod.
func containersOf(pod *corev1.Pod) []corev1.ContainerStatus {
	return append(append([]corev1.ContainerStatus(nil), pod.Status.InitContainerStatuses...), pod.Status.ContainerStatuses...)
}

func restartsOf(pod *corev1.Pod) int {
	n := 0
	for _, c := range containersOf(pod) {
		n += int(c.RestartCount)
	}
	return n
}

// troubles names the containers that have restarted, and why as far as the cluster tells.
func troubles(pod *corev1.Pod) []string {
	var list []string
	for _, c := range containersOf(pod) {
		if c.RestartCount == 0 {
			continue
		}
		var why []string
		if waiting := c.State.Waiting; waiting != nil && waiting.Reason != "" {
			why = append(why, waiting.Reason)
		}
		if last := c.LastTerminationState.Terminated; last != nil {
			why = append(why, strings.TrimSpace(fmt.Sprintf("last exit %d %s", last.ExitCode, last.Reason)))
		}
		if why == nil {
			list = append(list, c.Name)
		} else {
			list = append(list, fmt.Sprintf("%s (%s)", c.Name, strings.Join(why, ", ")))
		}
	}
	return list
}
