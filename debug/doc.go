// Package debug shows what is in a program's queues right now, what its workers do and why keys fail: as a page for
// people, and as JSON.
//
//	h := debug.NewHandler(debug.Options{})
//	defer h.Close()
//	workqueue.SetProvider(h) // queues and pools with a name appear by themselves
//	mux.Handle("/debug/workqueue", h)
//
// A program with metrics passes its provider to the handler: debug.Options{Metrics: prom.NewProvider(…)}. A queue
// that has no name, or another provider, is shown by [Register].
//
// Nothing is mounted by importing the package, and nothing can be changed through the handler unless Options.Actions
// is set. But keys and errors may name what is not for everyone, and a reader of the page may make the program look
// at its queues: mount it where only operators come, beside pprof. It has one address, wherever it is mounted and
// with or without [net/http.StripPrefix]; what is shown depends on the query alone:
//
//	?sort=…&search=…&page=…   the list of queues, 50 a page, those in most trouble first
//	?key=…                    the keys with that text, in all queues
//	?queue=ID&keys=…          one queue, and of each state up to that many keys (25, at most 250)
//	?queue=ID&error=…         the same, with the failing and given-up keys whose errors contain that text
//	?queue=ID&key=…           the same, and what is known of the key with that text
//	?queue=ID&key=…&id=…      one key. All keys link there; id distinguishes those whose texts look alike.
//	?queue=ID&count=…&error=… how many keys an action would be for: see below
//	&format=json              each of them as JSON (or format=html, whatever the Accept header says)
//
// Sort is by trouble (what does not answer, what is red, what is amber, and then the longest time that a key has been
// held, or has been in the line), queued, processing, waiting, oldest, longest, unfinished, failing, given_up, errors,
// adds, retries or name.
//
// A key is found by its whole text, as the page shows it or as it is. If no key is called that, those whose texts
// contain it are shown. A search goes over all keys of the queue in steps and keeps what it shows: a million keys take
// less than a second. One search runs at a time, for a minute at most, and ends when its reader goes away. Actions
// do not wait for it. A queue that is no [workqueue.KeyReader] is searched as far as its Snapshot goes. A key that was
// found is not searched for again: its page asks the queue and its pools for that key alone. A page whose search is
// long, or whose key is absent, does not refresh itself. A search of all queues names those that gave no answer.
//
// # Queues that do not answer
//
// Queues are read side by side. A list waits while some answer, and for a second after the last answer. A queue that has
// not answered then is shown with its last numbers and their age, and is not asked again until it has.
//
// # Times
//
// A queue reads the clock only if it has metrics, that is a name and a MetricsProvider: the handler is one. A queue
// that is registered by hand gets [Times] for a provider. Without one the page knows numbers and keys, but not for
// how long they have been there.
//
// # Errors
//
// Package worker knows why a key has failed. A pool is shown on the page of the queue that has its name, which is the
// queue's own unless worker.Options has another. If several queues have that name, a pool that does not name its queue is
// shown with each of them, and counted once. Keys that the queue itself keeps as given up ([workqueue.GivenUpKeeper]) are
// listed with those of the pools. Of a queue without a pool the page shows what its limiter knows: how often a key was requeued. Limiters of
// client-go know that of a key, but cannot list their keys.
//
// # Actions
//
// With Options.Actions, a POST changes a queue. Its form has these fields:
//
//	action   retry     adds the key now
//	         forget    makes the limiter and the pools forget its failures; what was given up leaves the list
//	         remove    takes it out of the queue and forgets its failures
//	         cancel    ends the context of the handler that has it: see [worker.Pool.Cancel]
//	         pause, resume, pause_group, resume_group
//	queue    the queue's id
//	key      the text of the key, whole or as the page shows it. If it fits several keys, nothing is done, unless
//	id       distinguishes them
//	of       instead of key, for retry and forget: failing, given_up, or all of both
//	error    with of: only the keys whose last error contains this text
//	count    with of: how many keys there were before. The answer says how many are gone since.
//	group    the name of the group, for pause_group and resume_group
//
// Every queue can retry until it is shut down. Those of package priorityqueue can do the rest; see
// [workqueue.KeyRemover]. Forget needs a limiter or a pool, cancel a pool. A key that was retried has the cause
// "retried by hand". The answer is an object with the fields action, queue, key, group and, if it was not done or not to the
// end, error. With of, it also has keys, to how many it was done; gone, that were there before; left, for which there was no
// time (an action takes ten seconds at most); left_more, if there may be more than these; and text, the same in words.
// A pool remembers the errors of 10,000 failing keys; with error, the others are left alone. Of keys that the queue itself keeps
// as given up, an action is for the last 10,000, and of those that only the limiter counts, for the 512 with the most
// requeues: ask again when these are gone. A count has more if there may be such keys.
//
// A page of another site cannot send such a request: it needs the header X-Workqueue-Action, with any value, which
// forms cannot send and scripts of other origins may not, and the browser must not say that it comes from another
// origin (see [net/http.CrossOriginProtection]). Programs that are no browsers need only the header:
//
//	curl -H 'X-Workqueue-Action: 1' -d action=retry -d queue=orders -d key=acme/17 localhost:8080/debug/workqueue
//	curl 'localhost:8080/debug/workqueue?queue=orders&count=failing&error=timeout'
//	curl -H 'X-Workqueue-Action: 1' -d action=retry -d queue=orders -d of=failing -d error=timeout localhost:8080/debug/workqueue
//
// This does not replace a login. Each request is reported to Options.Audit once, also one that was refused.
//
// # JSON
//
// A request that prefers application/json to text/html, or has format=json, gets the same as an object. Fields may
// be added; those that are there keep their names and meanings. Times are as in RFC 3339, and left out where
// they are not known. Fields that end in _seconds are numbers with fractions.
//
// The list:
//
//	time                  when it was made
//	registered, matching  the number of queues, and of those whose names contain what was searched for
//	queued, processing, waiting, failing, given_up: sums over the matching queues and their pools
//	paused_groups         the groups of all queues that are paused, if there are any
//	search, sort, page, pages: what is shown
//	sample_seconds        the time between two values of depth
//	queues                the queues of this page
//
// Each of its queues, and "queue" of a queue's own page:
//
//	id, name              what to ask for as ?queue=, and the name
//	queued, blocked, paused, processing, waiting, adds, retries, dropped, unmatched_dones, shutting_down,
//	oldest_queued_seconds, longest_running_seconds, unfinished_work_seconds: as in [workqueue.Stats]
//	paused_groups         the number of groups that are paused, if there are any
//	timed                 whether the queue reads the clock; if not, the three times are zero
//	last_minute           adds_per_second, dones_per_second, errors_per_second and retries_per_second
//	depth                 queued at each of the last samples, 120 at most, and last queued as above
//	pools                 the pools with the queue's name: name, wanted, living, busy, stuck, handled, failed, panicked,
//	                      timed_out, requeued, dropped and failing as in worker.Stats; given_up, the keys that are
//	                      dropped now; and handler, the durations of calls, as latency below
//	error                 that the queue does not answer, or that it or a pool panicked (then all is zero)
//	unanswered_seconds    how old the numbers are, if the queue does not answer
//
// A queue's page has, beside time, sample_seconds and queue:
//
//	latency, work         from add to Get, and from Get to Done, since the queue was made: count, mean_seconds, and
//	                      p50_at_most_seconds and p99_at_most_seconds, the bounds that half and 99 of 100 did not
//	                      exceed, left out above the last one; null in a queue without times
//	recent                latency and work of the last covers_seconds, which are five to ten minutes
//	history               queued, processing, waiting, adds_per_second, dones_per_second, errors_per_second,
//	                      retries_per_second, latency_mean_seconds and work_mean_seconds: of each of the last samples,
//	                      and last since then. The rates and means are those of the time between two samples, so that
//	                      no burst is missed; a mean is null if there was nothing.
//	running, queued       keys that workers hold, longest first; the head of the line
//	waiting               keys that wait for their time, next due first
//	failing               keys that fail, the last failure first, then those that only the limiter knows, most requeues first
//	given_up              keys that a pool has dropped, the last first
//	found                 with ?key=: search, exact, keys, more if there are more than these 25, and incomplete if there
//	                      was no time to look at all keys
//	error_contains        with ?error=: the text, and
//	matching              how many failing and given_up keys match (more, if there was no time to count all, or only a
//	                      part was listed)
//	groups                group, paused, and how many of the listed keys it has: of the paused groups and those of listed keys
//	facts                 name and value of what only this kind of queue knows
//
// A search of all queues has time, registered and found, whose keys have queue, with id and name, and which has
// unanswered, the queues that gave no answer. A key's page has time, queue with id and name, key, incomplete and error. A
// count has count, more and error.
//
// and each key:
//
//	key                   the text: a string itself, of other types what fmt prints, cut after 256 bytes. What cannot be
//	                      printed is escaped as in Go: \n, \x00, \u202e.
//	bytes                 the length of the whole text
//	id                    of a found key: what distinguishes it from others that look alike
//	state                 of a found key: processing, queued, waiting, failing (not in the queue, but the limiter or a
//	                      pool remembers its failures), given_up, or absent (nothing is known of it, any more). Of a key
//	                      that was given up: where it is since it was added again.
//	since, for_seconds    since when it is in that state, and for how long
//	due, due_in_seconds   when a waiting key's time comes, and how long that is
//	again                 whether it was added again while a worker holds it
//	requeues              its failures that the limiter remembers
//	priority, group, blocked: as in [workqueue.KeySnapshot]
//	causes                why it was added, if that is known: last, the last eight, each with reason, traceparent, time and
//	                      quiet; others, how many before those; and first, the time of the first
//	attempt, max_attempts how often a pool has handled it in a row, this time included; and how often it will at most,
//	                      which found keys have
//	stuck, stack          whether the pool's handler has held it for too long, and where that was then
//	failed_calls          of a found key, the last calls that have failed, the latest first: attempt, started,
//	                      started_ago_seconds, took_seconds, error, and stack if it panicked
//	error, failed_at, failed_ago_seconds: the last error, cut after 1 KiB, and when that was
//
// A request for a queue that is not registered gets status 404 and an object with the field error.
package debug
