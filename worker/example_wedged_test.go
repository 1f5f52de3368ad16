package worker_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/keyedqueue/workqueue/worker"
)

// A liveness probe that fails only when a restart would help. Kubernetes restarts the container then.
func ExamplePool_Wedged() {
	queue := newExampleQueue()
	pool := worker.New(queue, func(context.Context, string) error { return nil }, worker.Options[string]{})

	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := pool.Wedged(10 * time.Minute); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})

	probe := httptest.NewRecorder()
	mux.ServeHTTP(probe, httptest.NewRequest("GET", "/healthz", nil))
	fmt.Println(probe.Code)
	// Output: 200
}
