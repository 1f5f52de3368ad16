// Package prom shows the metrics of queues to Prometheus, under the names that Kubernetes gives them, so
// that its dashboards and alerts work unchanged:
//
//	workqueue.SetProvider(prom.NewProvider(prometheus.DefaultRegisterer, prom.Options{}))
//
// From then on every queue that is made with a name has these metrics, all with the label name. The upper
// seven are those of Kubernetes.
//
//	workqueue_depth                              gauge      keys that need processing
//	workqueue_adds_total                         counter    adds that changed something
//	workqueue_queue_duration_seconds             histogram  from a key's add to its Get
//	workqueue_work_duration_seconds              histogram  from Get to Done
//	workqueue_unfinished_work_seconds            gauge      how long held keys have been held, summed
//	workqueue_longest_running_processor_seconds  gauge      the longest of these times
//	workqueue_retries_total                      counter    calls of AddAfter and AddRateLimited
//	workqueue_waiting_keys                       gauge      keys that wait for their time
//	workqueue_oldest_queued_key_age_seconds      gauge      how long the head of the line has been queued
//	workqueue_dropped_keys_total                 counter    keys that were still waiting at shutdown
//	workqueue_unmatched_dones_total              counter    calls of Done for a key that no worker held
//
// A queue with priorities, as package priorityqueue has them, has one more, with the label priority: a
// number for each of up to ten priorities, and "other".
//
//	workqueue_queued_keys                        gauge      keys that wait for a worker, by priority
//
// In docs there are a Grafana dashboard and alert rules for them.
//
// # What a scrape costs
//
// A queue of this module counts inside itself and calls no metrics library. The scrape reads it: it takes
// each queue's lock for as long as it takes to copy the numbers, and not those of several queues at once.
// What a scrape shows of one queue is from one moment.
//
// Then a registry checks every metric, one after the other, which costs more than all of that. A program
// with thousands of names can serve what [Provider.Gather] returns beside its registry, for half of the
// processor time. To write it down as text and compress it, as Prometheus asks for, costs several times as
// much either way: BenchmarkScrape measures each step, for ten thousand names.
//
// # Queues of one name
//
// They add up. Of the times of which there is one a queue, the longest running worker and the oldest
// queued key, the longest counts. When a queue has been shut down and the last key is done, its gauges go
// (so they are absent, and not zero, when no queue of that name is left) and its counters stay, so that
// they never fall. They stay for as long as the program runs, so names should be few and fixed. A queue
// that is never shut down is kept by its metrics, like any metric by its registry.
//
// # Queues of others
//
// For any caller but this module's queues, a [Provider] is an ordinary provider of metrics that are told
// of every change. [For] makes it fit a package that has MetricsProvider interfaces of its own, as
// client-go has.
package prom
