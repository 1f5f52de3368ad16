// Package prom exports the metrics of queues to Prometheus, under the names that Kubernetes gives them, so
// that its dashboards and alerts work unchanged:
//
//	workqueue.SetProvider(prom.NewProvider(prometheus.DefaultRegisterer, prom.Options{}))
//
// Every queue that is made later with a name has these metrics, all with the label name. The first
// seven are Kubernetes'.
//
//	workqueue_depth                              gauge      keys that need processing
//	workqueue_adds_total                         counter    adds that changed something
//	workqueue_queue_duration_seconds             histogram  from a key's add to its Get
//	workqueue_work_duration_seconds              histogram  from Get to Done or to a hold
//	workqueue_unfinished_work_seconds            gauge      for how long workers have had their keys, summed
//	workqueue_longest_running_processor_seconds  gauge      the longest of these times
//	workqueue_retries_total                      counter    calls of AddAfter, AddRateLimited and Fail
//	workqueue_waiting_keys                       gauge      keys that wait for their time
//	workqueue_oldest_queued_key_age_seconds      gauge      how long the head of the line has been queued
//	workqueue_dropped_keys_total                 counter    keys that a shutdown has dropped
//	workqueue_unmatched_dones_total              counter    calls of Done for a key that no worker held
//	workqueue_keys_on_hold                       gauge      keys on hold, while there are any
//
// Queues with priorities, like those of package priorityqueue, have three more. The last one has the label
// priority, with a value for each of up to 25 priorities, and one for all "other".
//
//	workqueue_blocked_keys                       gauge      queued keys that a limit or a pause holds back
//	workqueue_paused                             gauge      1 while the queue is paused, otherwise 0
//	workqueue_queued_keys                        gauge      keys that need processing, by priority
//
// Queues that several processes share on a server, like those of package redisqueue, have
// workqueue_blocked_keys, workqueue_paused and the ones below. Those two, the last two below, the depth, the
// waiting keys and the age of the oldest queued key are of the whole queue: take their maximum over the
// processes, not the sum.
//
//	workqueue_shared_outage                      gauge      1 if the last call of the server failed, else 0
//	workqueue_shared_unsent_operations           gauge      operations, such as adds, still to be sent
//	workqueue_shared_errors_total                counter    attempts to reach the server that failed
//	workqueue_shared_lost_leases_total           counter    keys whose lease was lost while a worker held them
//	workqueue_shared_lost_dones_total            counter    calls of Done that came after that
//	workqueue_shared_call_duration_seconds       histogram  calls of the server, with a batch each
//	workqueue_shared_given_up_keys               gauge      keys that are not tried any more
//	workqueue_shared_repaired_entries            gauge      entries on the server that did not fit together
//
// A pool of package worker has these, with its name or, if it has none, its queue's:
//
//	workqueue_pool_results_total                 counter    calls of the handler, by result: success,
//	                                                        requeue, interrupt, retry, give_up
//	workqueue_pool_errors_total                  counter    those that failed
//	workqueue_pool_give_ups_total                counter    those that failed and whose key was given up
//	workqueue_pool_panics_total                  counter    those that panicked
//	workqueue_pool_timeouts_total                counter    those that took longer than their timeout
//	workqueue_pool_handle_duration_seconds       histogram  how long they took
//	workqueue_pool_wanted_workers                gauge      workers that the pool should have
//	workqueue_pool_living_workers                gauge      workers that exist
//	workqueue_pool_busy_workers                  gauge      workers that handle a key
//	workqueue_pool_stuck_workers                 gauge      workers whose handler takes too long
//	workqueue_pool_start_limited                 gauge      1 while the start limit keeps queued keys back
//	workqueue_pool_failing_keys                  gauge      keys of the queue that will be tried again
//	workqueue_pool_looping_keys                  gauge      keys that wanted to come at once more than
//	                                                        five times in a row
//	workqueue_pool_keys_on_hold                  gauge      keys that are on hold
//	workqueue_pool_holds_to_limit_total          counter    holds that came to their limit
//	workqueue_pool_given_up_keys                 gauge      keys that were given up and that the pool remembers
//	workqueue_pool_retry_delay_seconds           histogram  delays of failed keys, from the first failure on
//	workqueue_pool_hold_duration_seconds         histogram  how long keys were on hold, from the first hold on
//	workqueue_pool_busiest_key_share             gauge      the largest part of ten minutes' calls for one key,
//	                                                        if there were a hundred calls
//
// It also has these, if its queue is one of this module's in-memory queues and has metrics. See Changes of
// [worker.Stats]:
//
//	workqueue_pool_change_duration_seconds       histogram  from a key's first add to its next success
//	workqueue_pool_oldest_change_age_seconds     gauge      age of the oldest add that no success has answered
//
// A pool with Options.List has these, from its first list on:
//
//	workqueue_pool_last_list_timestamp_seconds   gauge      when its keys were last listed (Unix time)
//	workqueue_pool_list_failures_total           counter    lists that failed
//
// With [Options].ControllerRuntime, the metrics that controller-runtime has as well get its names.
//
// Work on a key ends when it is put on hold: its time on hold counts in no metric of work.
//
// The folder docs has a Grafana dashboard, alert rules, and what to do about each alert.
//
// # What a scrape costs
//
// Queues of this module count inside themselves and call no metrics library. A scrape reads them: it locks
// one queue after the other, each for as long as it takes to copy its numbers. The numbers of one queue are
// from one moment. Histograms are kept until they change: 2.6 KB a name, and a tenth of an idle queue's
// scrape.
//
// Ten thousand names in a plain registry take about 90 ms of CPU time if their queues are idle and 105 ms if
// all of them have worked, most of it in the registry; client_golang's own metrics take 180 ms.
// BenchmarkScrape measures all steps of a scrape.
//
// # Queues with the same name
//
// Their numbers add up. Of the longest running worker and the oldest queued key, the longest of all queues
// counts. When the last queue of a name has been shut down and its last key is done, the name's gauges
// disappear, and its counters and histograms stay, so that they never fall. They stay until the program ends,
// so names should be few and fixed. (The counter of failed lists is there while a pool lists its keys, and
// stays once a list has failed.) A queue that is never shut down is kept alive by its metrics.
//
// # Other queues
//
// For any other caller than this module's queues, a [Provider] is an ordinary provider of metrics to which
// every change is pushed. Callers with the same name share its metrics. [For] adapts a Provider to a package
// that has interfaces of its own, like client-go. [Join] is for programs whose registry has metrics of
// client-go's queues.
package prom
