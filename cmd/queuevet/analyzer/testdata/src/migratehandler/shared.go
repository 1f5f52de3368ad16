package migratehandler

import "k8s.io/client-go/util/workqueue"

// A pointer to client-go's type goes to a file that keeps the import, so this one keeps it, too.
func share() {
	pointer(struct{ queue *workqueue.Typed[string] }{workqueue.NewTyped[string]()})
}
