// Package debug shows what is in a program's queues right now: as a page for people, and as JSON.
//
//	h := debug.NewHandler(debug.Options{})
//	defer h.Close()
//	debug.Register(h, "orders", queue)
//	mux.Handle("/debug/workqueue", h)
//
// Nothing is mounted by importing the package, and nothing can be changed through the handler. But keys may
// tell what is not for everyone, and whoever may see the page may make the program look at its queues: mount
// it where only operators come, beside pprof. It has one address, wherever it is mounted and with or without
// [net/http.StripPrefix]; what is shown depends on the query alone:
//
//	?sort=…&search=…&page=…   the list of queues, 50 a page, those in most trouble first
//	?queue=ID&keys=…          one queue, and of each state up to that many keys (25, at most 250)
//
// Sort is by trouble (the longest time that a key has been held, or has been in the line), queued,
// processing, waiting, oldest, longest, unfinished, adds, retries or name.
//
// # Times
//
// A queue reads the clock only if it has metrics, that is a name and a MetricsProvider. Without them the
// page knows numbers and keys, but not for how long they have been there. A program that has no use for
// metrics gives its queues [Times] for a provider.
//
// # JSON
//
// A request that would rather have application/json than text/html gets the same as an object. Fields may
// be added; those that are there keep their names and meanings. Times are as in RFC 3339, and left out where
// they are not known. Fields that end in _seconds are numbers with fractions.
//
// The list:
//
//	time                     when it was made
//	registered, matching     the number of queues, and of those whose names contain what was searched for
//	queued, processing,      sums over the matching queues
//	waiting
//	search, sort, page,      what is shown
//	pages
//	sample_seconds           the time between two values of depth
//	queues                   the queues of this page
//
// Each of its queues, and "queue" of a queue's own page:
//
//	id, name                 what to ask for as ?queue=, and the name
//	queued, processing,      as in [workqueue.Stats]
//	waiting, adds, retries,
//	dropped, unmatched_dones,
//	shutting_down,
//	oldest_queued_seconds,
//	longest_running_seconds,
//	unfinished_work_seconds
//	timed                    whether the queue reads the clock; if not, the three times are zero
//	depth                    queued at each of the last samples, 120 at most, and last queued as above
//	error                    that the queue panicked when it was asked, if it did; then all is zero
//
// A queue's page has, beside time, sample_seconds and queue:
//
//	latency, work            from add to Get, and from Get to Done: count, mean_seconds, and
//	                         p50_at_most_seconds and p99_at_most_seconds, the bounds that half and 99 of
//	                         100 did not exceed, left out above the last one; null in a queue without times
//	running, queued,         keys that workers hold, longest first; the head of the line; keys that wait
//	waiting, failing         for their time, next due first; keys that fail, most requeues first
//
// and each key:
//
//	key                      the text: a string itself, of other types what fmt prints, cut after 256
//	                         bytes. What cannot be printed is escaped as in Go: \n, \x00, \u202e.
//	bytes                    the length of the whole text
//	since, for_seconds       since when it is in that state, and for how long
//	due, due_in_seconds      when a waiting key's time comes, and how long that is
//	again                    whether it was added again while a worker holds it
//	requeues                 its failures that the limiter remembers
//
// A request for a queue that is not registered gets status 404 and an object with the field error.
package debug
