// Package debug shows what is in a program's queues right now, what its workers do and why keys fail: as a page for
// people, and as JSON.
//
//	h := debug.NewHandler(debug.Options{})
//	defer h.Close()
//	workqueue.SetProvider(h) // queues and pools with a name appear by themselves
//	mux.Handle("/debug/workqueue", h)
//
// A program with metrics passes its provider to the handler: debug.Options{Metrics: prom.NewProvider(…)}. A queue
// that has no name, or another provider, is shown by [Register]. Without any provider it reads no clock, and the page
// knows no times: give it [Times].
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
//	?queue=ID&state=…&page=…  all its keys of a state (processing, queued, waiting, failing, given_up), 250 a page
//	?queue=ID&key=…           the same, and what is known of the key with that text
//	?queue=ID&key=…&id=…      one key. All keys link there; id distinguishes those whose texts look alike.
//	?queue=ID&count=…&error=… how many keys an action would be for: see below
//	&format=json              each of them as JSON (or format=html, whatever the Accept header says)
//
// Sort is by trouble (what does not answer, what is red, what is amber, and then the longest time that a key has been
// held, or has been in the line), queued, processing, waiting, oldest, longest, unfinished, unanswered (the oldest change
// without a success), failing, given_up, errors, adds, retries or name.
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
// not answered then is shown with its last numbers and their age, and is not asked again until it has. Except for a search, a page
// takes five seconds at most.
//
// A queue on a server answers without it, too. While it does not reach the server, or takes more than a second, its keys count as
// not known: the page says so, a search names the queue, and an action on keys gets status 503, except for cancel and
// release, which need the pools alone.
//
// # Errors
//
// Package worker knows why a key has failed. A pool is shown on the page of the queue that has its name, which is the
// queue's own unless worker.Options has another. If several queues have that name, a pool that does not name its queue is
// shown with each of them, and counted once. Keys that the queue itself keeps as given up ([workqueue.GivenUpKeeper]) are
// listed with those of the pools. Of a queue without a pool the page shows what its limiter knows: how often a key was
// requeued. Limiters of client-go know that of a key, but cannot list their keys.
//
// # Actions
//
// With Options.Actions, a POST changes a queue. Its form has these fields:
//
//	action   retry     adds the key now
//	         forget    makes the limiter and the pools forget its failures; what was given up leaves the list
//	         remove    takes it out of the queue and forgets its failures
//	         cancel    ends the context of the handler that has it: see [worker.Pool.Cancel]
//	         release   ends the hold of the key: see [worker.Pool.Release]
//	         pause, resume, pause_group, resume_group
//	queue    the queue's id
//	key      the text of the key, whole or as the page shows it. If it fits several keys, nothing is done, unless
//	id       distinguishes them
//	of       instead of key, for retry and forget: failing, given_up, or all of both
//	error    with of: only the keys whose last error contains this text
//	count    with of: how many keys there were before. The answer says how many are gone since.
//	group    the name of the group, for pause_group and resume_group. If it fits several, nothing is done, unless
//	group_id distinguishes them
//
// Every queue can retry until it is shut down. Those of package priorityqueue can do the rest; see
// [workqueue.KeyRemover]. Forget needs a limiter or a pool, cancel and release a pool. A key that was retried has the cause
// "retried by hand". The answer is an object with the fields action, queue, key, group, text, which says what was
// done, and, if it was not done or not to the end, error. With of, it also has keys, to how many it was done, to each once; gone, that were
// there before; left, for which there was no time (an action takes ten seconds at most); and left_more, if there may be more than
// these. A pool remembers the errors of 10,000 failing keys; with error, the others are left alone. Of given-up keys a pool
// remembers the last Options.KeepGivenUp, and an action is for the last 10,000 that the queue itself keeps. Without a pool it is for
// the keys in the queue, and for 512 others that only the limiter counts. Ask again when these are gone. A count has more if there
// may be such keys.
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
// A request that prefers application/json to text/html, or has format=json, gets the same as an object, whose fields are
// listed in docs/debug.md. Fields may be added; those that are there keep their names and meanings. A request for a queue
// that is not registered gets status 404 and an object with the field error.
package debug
