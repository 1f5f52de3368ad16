// Package debug shows what is in a program's queues right now, what its workers do and why keys fail: as a
// page to read, and as JSON.
//
//	h := debug.NewHandler(debug.Options{})
//	defer h.Close()
//	workqueue.SetProvider(h) // queues and pools with a name appear by themselves
//	mux.Handle("/debug/workqueue", h)
//
// A program with metrics passes its provider to the handler: debug.Options{Metrics: prom.NewProvider(…)}. A
// queue that has no name, or another provider, is shown by [Register], and while a pool that the handler
// shows works on it. A queue without a provider does not read the clock, so the page has no times for it:
// give it [Times].
//
// Nothing is mounted by importing the package, and nothing can be changed through the handler unless
// Options.Actions is set. But keys and errors may name what is not for everyone, and a reader of the page may
// make the program look at its queues: mount it where only operators come, beside pprof. It has one address,
// wherever it is mounted and with or without [net/http.StripPrefix]; what is shown depends on the query
// alone:
//
//	?search=…&page=…          the list of queues, 50 a page, those in most trouble first
//	?queue=ID                 one queue with its pools, and the first 25 keys of each state
//	?queue=ID&state=…&page=…  all its keys that are processing, on_hold, queued, waiting, failing or given_up
//	&error=…                  those that fail or were given up, and whose errors contain that text
//	?queue=ID&key=…           what is known of the key with that text
//	?queue=ID&key=…&id=…      the same. All keys link there; id distinguishes those whose texts look alike.
//	?queue=ID&count=…&error=… how many keys an action on that set is for: failing, given_up, or all of both
//	&format=json              each of them as JSON
//
// A key is found by its whole text, as it is or as the page shows it. If no key has that text, the keys whose
// texts contain it are shown. A search goes over all keys; a million take less than a second. It takes a
// minute at most, and ends when its reader leaves. One search, of any queue, runs at a time; lists of more
// than 512 keys wait for it. Any other page takes five seconds at most. Actions do not wait.
//
// If a queue on a server, such as those of package redisqueue, does not reach it, or an answer takes more
// than a second, the page shows its last numbers and says that the server did not answer in time. An action
// on keys then gets status 503, except for cancel and release, which need the pools alone. A pause or its end
// reaches the server when the queue does.
//
// # Actions
//
// With Options.Actions, a POST changes a queue. Its form has these fields:
//
//	action   retry     adds the key now
//	         forget    makes the limiter and the pools forget its failures; a given-up key leaves the list
//	         remove    takes it out of the queue and forgets its failures
//	         cancel    ends the context of the handler that has it: see [worker.Pool.Cancel]
//	         release   ends the hold of the key: see [worker.Pool.Release]
//	         pause     the queue hands out nothing; if it cannot pause, its pools in this process start nothing
//	         resume, pause_group, resume_group
//	queue    the queue's id
//	key, id  the text of the key, whole or as the page shows it, and what distinguishes it from others with
//	         that text. Without id nothing is done if several keys of the queue have the text.
//	of       instead of key, for retry and forget: failing, given_up, or all of both
//	error    with of: only the keys whose last error contains this text
//	count    with of: how many keys the reader has confirmed. The answer says how many of these were gone.
//	group    the whole name of the group
//	for      how long a pause lasts, such as 15m. Without it, it has no end.
//
// Every queue can retry until it is shut down; see [operate.Operable] for the rest. Forget needs a limiter
// or a pool, cancel and release a pool. A key that was retried has the cause "retried by hand", unless the
// queue itself kept it as given up.
//
// The answer is an object with action, queue, key, group, and text, which says what was done; error, if not
// all was done; and, zero if it was not on keys: keys, how many it was done to; gone, how many had left
// meanwhile; left, how many were not done in ten seconds, or because the queue's server did not answer. With
// left_more there may be others: a queue lists 10,000 given-up keys, or the time was over. Repeat it until
// both are gone. If the queue was shut down meanwhile, error says so, and keys counts some not taken.
//
// A page of another site cannot send such a request: it needs the header X-Workqueue-Action, with any value,
// which forms cannot send and scripts of other origins may not, and the browser must not say that it comes
// from another origin (see [net/http.CrossOriginProtection]). Programs that are no browsers need only the
// header. It does not replace a login. Each request is reported to Options.Audit once, even if it was
// refused. docs/operating.md has a recipe for each trouble.
//
// # JSON
//
// With format=json a page is an object. The answers to actions and the fields that actions need keep their
// names and meanings: the ids of queues, the texts and ids of keys, and count. All else may change: it is
// what the queues and their pools say themselves, as [workqueue.KeySnapshot] and [worker.KeySnapshot] have
// it.
package debug
