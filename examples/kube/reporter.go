package main

import (
	"context"
	"fmt"
	"io"
	"slices"
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
	// counts are the containers' counters when they were last seen. What a counter has when it is first
	// seen is from before, and a counter that has fallen starts afresh.
	counts map[string]int32
	// restarts are those that were seen within the time that counts, oldest first.
	restarts []restart
	news     bool // there were some since the last line
}

// restart records that a container's counter grew by n.
type restart struct {
	container string
	n         int
	at        time.Time
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
	if h.uid != pod.UID || h.counts == nil {
		// A new Pod, or another Pod of the same name.
		*h = history{uid: pod.UID, counts: make(map[string]int32)}
	}
	n := h.see(containersOf(pod), time.Now(), r.options.within)
	if n < r.options.restarts || !h.news {
		return nil
	}
	if err := r.print("%s: %d restarts within %v: %s\n", key, n, r.options.within,
		strings.Join(h.troubles(pod), ", ")); err != nil {
		return err // The line is still to be printed.
	}
	h.news = false
	return nil
}

// see takes in the state of the containers, and returns how many restarts there were within the time.
func (h *history) see(containers []corev1.ContainerStatus, now time.Time, within time.Duration) int {
	for _, c := range containers {
		if before, known := h.counts[c.Name]; known && c.RestartCount > before {
			h.restarts = append(h.restarts, restart{c.Name, int(c.RestartCount - before), now})
			h.news = true
		}
		h.counts[c.Name] = c.RestartCount
	}
	h.restarts = slices.DeleteFunc(h.restarts, func(s restart) bool { return now.Sub(s.at) > within })
	n := 0
	for _, s := range h.restarts {
		n += s.n
	}
	return n
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
	return append(append([]corev1.ContainerStatus(nil), pod.Status.InitContainerStatuses...),
		pod.Status.ContainerStatuses...)
}

// troubles names the containers that have restarted, with the reasons that the cluster gives.
func (h *history) troubles(pod *corev1.Pod) []string {
	var list []string
	for _, c := range containersOf(pod) {
		if !slices.ContainsFunc(h.restarts, func(s restart) bool { return s.container == c.Name }) {
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
