package main

import (
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// delayWatches makes the watches of client show each event lag after the one before it, or after it happened.
func delayWatches(client *fake.Clientset, lag time.Duration) {
	client.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		inner, err := client.Tracker().Watch(action.GetResource(), action.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		w := &delayed{Interface: inner, result: make(chan watch.Event)}
		go w.run(lag)
		return true, w, nil
	})
}

// delayed is a watch that is late.
type delayed struct {
	watch.Interface
	result chan watch.Event
}

func (w *delayed) ResultChan() <-chan watch.Event { return w.result }

// Stop also lets run go, which may have an event that nobody takes any more.
func (w *delayed) Stop() {
	w.Interface.Stop()
	for range w.result {
	}
}

func (w *delayed) run(lag time.Duration) {
	defer close(w.result)
	for e := range w.Interface.ResultChan() {
		time.Sleep(lag)
		w.result <- e
	}
}
