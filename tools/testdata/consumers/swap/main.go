package main

import (
	"fmt"
	"reflect"

	"k8s.io/client-go/util/workqueue"
)

func main() {
	if reflect.TypeOf(workqueue.NewTyped[int]()).Elem().PkgPath() == "github.com/keyedqueue/workqueue" {
		fmt.Println("swap")
	}
}
