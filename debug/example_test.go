package debug_test

import (
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
	request, _ := http.NewRequest("GET", server.URL+"/debug/workqueue?queue=orders", nil)
	request.Header.Set("Accept", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	answer, _ := io.ReadAll(response.Body)
	fmt.Println(response.Status, strings.Contains(string(answer), `"queued":[{"key":"acme/17"`))
	// Output: 200 OK true
}
