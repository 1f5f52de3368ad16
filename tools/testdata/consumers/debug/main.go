package main

import (
	"fmt"
	"net/http/httptest"
	"strings"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
)

func main() {
	queue := workqueue.NewTyped[string]()
	queue.Add("debug")
	handler := debug.NewHandler(debug.Options{})
	defer handler.Close()
	debug.Register(handler, "queue", queue)
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest("GET", "/", nil))
	if strings.Contains(answer.Body.String(), "queue") {
		fmt.Println("debug")
	}
}
