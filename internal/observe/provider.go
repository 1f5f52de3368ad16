package observe

import "sync/atomic"

// Global is the provider of metrics of all queues that have a name and no provider of their own, or nil. It
// is a workqueue.MetricsProvider, which this package cannot name.
var Global atomic.Pointer[any]
