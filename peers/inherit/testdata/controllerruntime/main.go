package main

import (
	"fmt"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func main() {
	options := controller.Options{NewQueue: func(name string, _ workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
		return priorityqueue.New[reconcile.Request](name)
	}}
	queue := options.NewQueue("controllerruntime", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	request := reconcile.Request{}
	request.Name = "controllerruntime"
	queue.Add(request)
	got, _ := queue.Get()
	fmt.Println(got.Name)
}
