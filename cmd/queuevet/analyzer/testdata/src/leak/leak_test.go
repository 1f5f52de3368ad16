package leak

import "k8s.io/client-go/util/workqueue"

func testHelper(queue workqueue.TypedInterface[string]) string {
	key, _ := queue.Get()
	return "got" + key
}
