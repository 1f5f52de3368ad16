package main

import (
	"sync/atomic"
	"time"
)

// server handles as many calls at once as it has capacity, each in 20 ms. If there are more, they share the
// capacity, and each call too many costs all of them 2 %: for threads that change places, memory, and locks.
type server struct{ running, capacity atomic.Int64 }

func (s *server) call() {
	running := float64(s.running.Add(1))
	defer s.running.Add(-1)
	capacity := float64(s.capacity.Load())
	slower := 1.0
	if running > capacity {
		slower = running / capacity * (1 + .02*(running-capacity))
	}
	time.Sleep(time.Duration(slower * float64(20*time.Millisecond)))
}
