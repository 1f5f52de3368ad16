// Package workqueue sets client-go's provider, as component-base does.
package workqueue

import k8sworkqueue "k8s.io/client-go/util/workqueue"

func init() { k8sworkqueue.SetProvider(nil) }
