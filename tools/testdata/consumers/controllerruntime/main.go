package main

import (
	"fmt"

	"github.com/keyedqueue/workqueue/controllerruntime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func main() {
	options := controller.Options{NewQueue: controllerruntime.NewQueue}
	queue := options.NewQueue("controllerruntime", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	request := reconcile.Request{}
	request.Name = "controllerruntime"
	queue.Add(request)
	got, _ := queue.Get()
	fmt.Println(got.Name)
}
