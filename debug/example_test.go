package debug_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
)

func Example() {
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "orders", MetricsProvider: debug.Times{}})
	defer queue.ShutDown()

	h := debug.NewHandler(debug.Options{})
	defer h.Close()
	debug.Register(h, "", queue) // under its own name
	mux := http.NewServeMux()
	mux.Handle("/debug/workqueue", h)
	server := httptest.NewServer(mux) // a program has its own, where only operators come
	defer server.Close()

	queue.Add("acme/17")
	response, err := http.Get(server.URL + "/debug/workqueue?queue=orders&state=queued&format=json")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	answer, _ := io.ReadAll(response.Body)
	fmt.Println(response.Status, strings.Contains(string(answer), `"keys":[{"key":"acme/17"`))
	// Output: 200 OK true
}

// An audit log has all of an action: who, what, how many keys, and what went wrong.
func ExampleOptions_audit() {
	h := debug.NewHandler(debug.Options{
		Actions: true,
		Audit: func(r *http.Request, a debug.Action) {
			fmt.Printf("%s: %v\n", r.Header.Get("X-Forwarded-User"), a)
		},
	})
	defer h.Close()
	queue := workqueue.NewQueue(nil, workqueue.TypedRateLimitingQueueConfig[string]{})
	defer queue.ShutDown()
	debug.Register(h, "orders", queue)
	_, _ = queue.Fail(context.Background(), "acme/17", workqueue.Failure{})

	act := func(form string) {
		r := httptest.NewRequest("POST", "/debug/workqueue", strings.NewReader(form))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("X-Workqueue-Action", "1")
		r.Header.Set("X-Forwarded-User", "bob") // The proxy that asks for a login sets it.
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	act("action=retry&queue=orders&of=failing")
	act("action=cancel&queue=orders&key=acme/18")
	// Output:
	// bob: retry orders of="failing" keys=1
	// bob: cancel orders key="acme/18" keys=0: This queue has no such action: removing needs a priorityqueue or a redisqueue, pausing one of them or a worker.Pool, canceling and releasing a pool.
}
