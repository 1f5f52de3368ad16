package debug

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/worker"
)

// Action is a request to change a queue.
type Action struct {
	// Name is "retry", "forget", "remove", "cancel", "release", "pause", "resume", "pause_group" or
	// "resume_group", or whatever else was asked for.
	Name string
	// Queue is the id of the queue, Key the text of the key, and Group the name of the group, if there is one.
	// They are printable, and long ones are cut, as what follows.
	Queue, Key, Group string
	// Of is the set of keys that an action on many keys is for, and ErrorContains the text that their errors
	// contain.
	Of, ErrorContains string
	// For is how long a pause lasts, or zero without an end.
	For time.Duration
	// Selected are the texts of the keys, if it is for several that were chosen one by one. Then Key is empty.
	Selected []string
	// Keys is to how many keys it was done.
	Keys int
	// Err is why nothing was done, or not all, or nil.
	Err error
}

// actionHeader is what a request for an action needs: browsers let scripts of other sites send it only if the
// server agrees beforehand, and forms cannot send it at all.
const actionHeader = "X-Workqueue-Action"

// actionSet names what the page offers for a queue, or for a key.
type actionSet []string

// keyActions are the actions on keys: the texts of the buttons for a key and for all of a list, what was done
// to a key and to several, and the answer if no key is called so.
var keyActions = map[string]struct{ button, forAll, done, several, noKey string }{
	"retry": {
		button: "Retry now", forAll: "Retry all", several: "Retried", noKey: "No such key.",
	},
	"forget": {
		button: "Forget failures", forAll: "Forget all failures", done: "Forgot the failures of %s.",
		several: "Forgot the failures of", noKey: "No such key.",
	},
	"remove": {
		button: "Remove", done: "Removed %s, and forgot its failures.",
		several: "Removed", noKey: "No such key in the queue.",
	},
	"cancel": {
		button: "Cancel", done: "Ended the context of the handler of %s. What it returns decides what follows.",
		several: "Canceled the handlers of",
		noKey:   "No handler has a key that is called that: it may just have ended.",
	},
	"release": {
		button: "Release", done: "Ended the hold of %s. If it was added, it comes as soon as a worker is free.",
		several: "Ended the holds of", noKey: "No key on hold is called that: the hold may just have ended.",
	},
}

// Has reports whether the action is offered.
func (a actionSet) Has(action string) bool { return slices.Contains(a, action) }

// only returns those of actions that are offered.
func (a actionSet) only(actions ...string) actionSet {
	return slices.DeleteFunc(actions, func(action string) bool { return !a.Has(action) })
}

// actionsOf returns what the queue and its pools can do at all.
func (h *Handler) actionsOf(r *reading) (can actionSet) {
	if h.audit == nil {
		return nil
	}
	offer := func(action string, possible bool) {
		if possible {
			can = append(can, action)
		}
	}
	q, hasPools := r.entry.queue, len(r.pools) > 0
	offer("retry", r.entry.hasQueue() && !r.stats.ShuttingDown)
	offer("remove", q.Remove != nil)
	offer("forget", q.Forget != nil || q.ForgetGivenUp != nil || hasPools)
	offer("cancel", hasPools)
	offer("release", hasPools)
	offer("pause", q.Pause != nil || r.pausesPools())
	offer("pause_group", q.PauseGroup != nil)
	return can
}

// forKey returns what can be done with k.
func (a actionSet) forKey(k keyReport) actionSet {
	inQueue := k.State != stateGivenUp && k.State != stateFailing
	can := map[string]bool{
		"retry": true, "remove": inQueue, "forget": !inQueue || k.Error != "" || k.Requeues > 0,
		"cancel":  k.State == stateProcessing && k.OnHold == nil,
		"release": k.OnHold != nil, "pause_group": k.GroupToPause != "",
	}
	return slices.DeleteFunc(slices.Clone(a), func(action string) bool { return !can[action] })
}

// actionError is why an action was refused or impossible, with the status of the answer.
type actionError struct {
	status int
	text   string
}

func (e *actionError) Error() string { return e.text }

// statusOf returns the status of the answer that reports err.
func statusOf(err error) int {
	var refused *actionError
	if errors.As(err, &refused) {
		return refused.status
	}
	return http.StatusInternalServerError
}

func refuse(status int, format string, args ...any) error {
	return &actionError{status, fmt.Sprintf(format, args...)}
}

// actionReport is the answer to a request for an action.
type actionReport struct {
	Action string `json:"action"`
	Queue  string `json:"queue"`
	Key    string `json:"key,omitempty"`
	Group  string `json:"group,omitempty"`
	*bulkResult
	// Text says what was done.
	Text  string `json:"text,omitempty"`
	Error string `json:"error,omitempty"`
}

// doneText says what a pause or its end has done, or will do after the outage of the queue's server.
func (a Action) doneText(outage bool) string {
	lasts := ""
	if a.For > 0 {
		lasts = " for " + human(a.For)
	}
	group := cmp.Or(a.Group, "(empty)")
	switch {
	case outage && (a.Name == "pause" || a.Name == "resume"):
		return "The queue does not reach its server. It is " + a.Name + "d as soon as it does."
	case a.Name == "pause":
		return "Paused the queue" + lasts + "."
	case a.Name == "resume":
		return "Resumed the queue."
	case a.Name == "pause_group":
		return "Paused group " + group + lasts + "."
	}
	return "Resumed group " + group + "."
}

// String returns what was asked for and what came of it, in one line: retry orders key="acme/17" keys=1.
func (a Action) String() string {
	var b strings.Builder
	b.WriteString(a.Name + " " + a.Queue)
	fields := [][2]string{{"key", a.Key}, {"group", a.Group}, {"of", a.Of}, {"errorContains", a.ErrorContains}}
	for _, field := range fields {
		if field[1] != "" {
			fmt.Fprintf(&b, " %s=%q", field[0], field[1])
		}
	}
	if len(a.Selected) > 0 {
		fmt.Fprintf(&b, " selected=%q", a.Selected)
	}
	if a.For > 0 {
		fmt.Fprintf(&b, " for=%v", a.For)
	}
	fmt.Fprintf(&b, " keys=%d", a.Keys)
	if a.Err != nil {
		fmt.Fprintf(&b, ": %v", a.Err)
	}
	return b.String()
}

// maxForm bounds the size of a request for an action.
const maxForm = 512 << 10

// serveAction does what a POST asks for, and reports it to the audit hook.
func (h *Handler) serveAction(w http.ResponseWriter, r *http.Request) (status int, report actionReport) {
	err := checkOrigin(r)
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if formErr := r.ParseForm(); formErr != nil {
		err = cmp.Or(err, refuse(http.StatusBadRequest, "The form cannot be read."))
	}
	form := r.PostForm
	a := Action{
		Name: short(form.Get("action"), maxName), Queue: short(form.Get("queue"), maxName),
		Key: short(form.Get("key"), maxKey), Group: short(form.Get("group"), maxName),
		Of: short(form.Get("of"), maxName), ErrorContains: short(form.Get("error"), maxKey),
	}
	if keys := form["key"]; len(keys) > 1 {
		a.Key, a.Selected = "", mapped(keys, func(key string) string { return short(key, maxKey) })
	}
	if form.Get("for") != "" && err == nil {
		if a.For, err = time.ParseDuration(form.Get("for")); err != nil || a.For <= 0 {
			err = refuse(http.StatusBadRequest, "The field for is not a duration above zero: write it like 15m.")
		}
	}
	status, report = http.StatusOK, actionReport{Action: a.Name, Queue: a.Queue, Key: a.Key, Group: a.Group}
	if err == nil {
		report.bulkResult, report.Text, err = h.act(r.Context(), a, form)
	}
	switch {
	case report.bulkResult != nil:
		a.Keys = report.Keys
	case err == nil && form.Has("key"):
		a.Keys = 1
	}
	if a.Err = err; err != nil {
		status, report.Error = statusOf(err), err.Error()
	}
	h.audit(r, a)
	return status, report
}

var crossOrigin = http.NewCrossOriginProtection()

// checkOrigin refuses what a page of another site may have sent.
func checkOrigin(r *http.Request) error {
	if err := crossOrigin.Check(r); err != nil {
		return refuse(http.StatusForbidden, "The request comes from another site.")
	}
	if r.Header.Get(actionHeader) == "" {
		return refuse(http.StatusForbidden, "The request lacks the header %s.", actionHeader)
	}
	return nil
}

// logAction is the audit hook of a program that has none.
func logAction(r *http.Request, a Action) {
	log := slog.With("action", a.Name, "queue", a.Queue, "key", a.Key, "selected", a.Selected, "group", a.Group,
		"of", a.Of, "errorContains", a.ErrorContains, "for", a.For, "keys", a.Keys, "remote", r.RemoteAddr)
	if a.Err != nil {
		log.WarnContext(r.Context(), "workqueue/debug: an action was not done", "error", a.Err)
		return
	}
	log.InfoContext(r.Context(), "workqueue/debug: an action was done")
}

// act does what form, which a describes, asks for. The result is nil unless that was for many keys; text says
// what was done.
func (h *Handler) act(ctx context.Context, a Action, form url.Values) (result *bulkResult, text string,
	err error) {
	if !form.Has("queue") { // It may be in the query, or in a body of another type.
		return nil, "", refuse(http.StatusBadRequest,
			"The request has no form (application/x-www-form-urlencoded) with the field queue.")
	}
	e := h.find(form.Get("queue"))
	if e == nil {
		return nil, "", refuse(http.StatusNotFound, "No such queue is registered.")
	}
	r, q, lasts := h.read(e, searchLimit), e.queue, cmp.Or(a.For, operate.UntilResumed)
	done := a.doneText(r.hasOutage())
	if r.pausesPools() && (a.Name == "pause" || a.Name == "resume") {
		done += " Its workers in this process start no keys while it is paused; keys are still added."
	}
	switch action := form.Get("action"); {
	case (action == "pause" || action == "pause_group") && r.stats.ShuttingDown:
		err = refuse(http.StatusConflict, "The queue is shut down: it cannot be paused.")
	case action == "pause" && (q.Pause != nil || r.pausesPools()):
		r.pause(lasts)
		text = done
	case action == "resume" && (q.Resume != nil || r.pausesPools()):
		r.resume()
		text = done
	case action == "pause_group" && q.PauseGroup != nil:
		text, err = r.actOnGroup(func(group string) { q.PauseGroup(group, lasts) }, form, done)
	case action == "resume_group" && q.ResumeGroup != nil:
		text, err = r.actOnGroup(q.ResumeGroup, form, done)
	case action == "retry" && r.stats.ShuttingDown:
		err = refuse(http.StatusConflict, "The queue is shut down: it takes no more keys.")
	case !h.actionsOf(r).Has(action):
		err = refuse(http.StatusBadRequest, "This queue has no such action: removing needs a "+
			"priorityqueue or a redisqueue, pausing one of them or a worker.Pool, canceling and releasing a pool.")
	case form.Has("of") && (action == "retry" || action == "forget"), len(form["key"]) > 1:
		result, text, err = h.actOnMany(ctx, r, form)
	case form.Has("key"):
		text, err = h.actOnKey(ctx, r, form)
	default:
		err = refuse(http.StatusBadRequest, "The form lacks the field key (or, for retry and forget, of).")
	}
	return result, text, err
}

// needsQueue reports whether an action is for keys of the queue. Those of the others are in the pools' lists.
func needsQueue(action string) bool { return action != "cancel" && action != "release" }

var errNoTime = refuse(http.StatusServiceUnavailable, "There was no time to look at all keys.")

// actOnKey does what form asks for to the key that it names, and returns what came of it.
func (h *Handler) actOnKey(ctx context.Context, r *reading, form url.Values) (string, error) {
	action := form.Get("action")
	texts := keyActions[action]
	noKey := refuse(http.StatusNotFound, "%s", texts.noKey)
	found := h.search(ctx, h.acting, r, form.Get("key"), form.Get("id"), needsQueue(action))
	switch {
	case r.missing != nil && needsQueue(action):
		return "", r.missing
	case found.incomplete && r.missing == nil:
		return "", errNoTime
	case !found.exact || found.isAbsent():
		return "", noKey
	case len(found.keys) > 1:
		return "", refuse(http.StatusConflict, "More than one key is called that.")
	}
	k := found.keys[0]
	k.named = true
	b := &bulk{reading: r, action: action}
	b.one(k)
	b.endStep()
	switch {
	case b.failed != nil:
		return "", b.failed
	case b.result.Gone > 0 && action != "forget":
		return "", noKey
	case action == "retry":
		return r.retryText(k.key(), k.state()), nil
	}
	return fmt.Sprintf(texts.done, cmp.Or(short(form.Get("key"), maxKey), "(empty)")), nil
}

// retryText says when a key comes that was retried and that was in this state before. If it is queued behind
// others, it moves forward if the queue has priorities.
func (r *reading) retryText(key any, before string) string {
	q, name := r.entry.queue, cmp.Or(short(keyText(key), maxKey), "(empty)")
	now, _ := q.SnapshotKey(key)
	text := "Added " + name + ": "
	if before == stateQueued {
		text = name + " was queued already: "
	}
	switch {
	case r.anyPool(func(p *worker.Inspector) bool { return p.SnapshotKey(key).OnHold != nil }):
		text += "it is on hold, and comes when the hold ends."
	case now.State == workqueue.KeyProcessing:
		text += "a worker has it, and Done queues it again."
	case now.State == workqueue.KeyQueued:
		text += r.moveToFront(key)
	case now.State == workqueue.KeyWaiting: // As with priorityqueue.Latest, or within a MinInterval.
		text += "its queue makes it wait, and it comes in " + human(now.Due.Sub(r.at)) + "."
	default:
		text += "it comes as soon as a worker is free."
	}
	switch stats := q.Stats(); {
	case stats.Paused:
		text += " The queue is paused."
	case now.Blocked:
		text += " Its group is at its limit or paused."
	}
	return text
}

// moveToFront gives a queued key a priority above that of the line's head, if the queue has priorities, and
// says which place it has.
func (r *reading) moveToFront(key any) string {
	q := r.entry.queue
	line := q.Snapshot(searchLimit)
	isKey := func(k workqueue.KeySnapshot[any]) bool { return k.Key == key }
	if q.AddWithPriority != nil && len(line.Queued) > 0 && !isKey(line.Queued[0]) {
		q.AddWithPriority(key, max(line.Queued[0].Priority, line.Queued[0].Priority+1), 0)
		line = q.Snapshot(searchLimit)
	}
	switch place := slices.IndexFunc(line.Queued, isKey); {
	case place == 0:
		return "it comes as soon as a worker is free."
	case place > 0:
		return fmt.Sprintf("it is number %s of %s in the line.", number(place+1), number(line.Stats.Queued))
	}
	first, all := number(len(line.Queued)), number(line.Stats.Queued)
	return fmt.Sprintf("it is behind the first %s of %s in the line.", first, all)
}

// do does the action to a key. It returns false if there is nothing to do it to, any more.
func (r *reading) do(action string, k knownKey) bool {
	q, key := r.entry.queue, k.key()
	switch action {
	case "retry":
		if q.RetryGivenUp != nil && (k.kept || k.named) {
			if was := q.RetryGivenUp(key); was || !k.named {
				return was
			}
		}
		q.AddCause(key, workqueue.Cause{Reason: "retried by hand"})
		return true
	case "cancel":
		return r.anyPool(func(p *worker.Inspector) bool { return p.Cancel(key) })
	case "release":
		return r.anyPool(func(p *worker.Inspector) bool { return p.Release(key) })
	case "remove":
		k.kept, k.named = false, false
		return q.Remove(key) && r.forget(k)
	default:
		return r.forget(k)
	}
}

// forget makes the queue's limiter, the pools and, if the queue itself keeps it as given up, the queue forget
// the key's failures. It returns false if the queue does not keep it any more.
func (r *reading) forget(k knownKey) bool {
	q, was := r.entry.queue, true
	if q.ForgetGivenUp != nil && (k.kept || k.named) {
		began := time.Now()
		was = q.ForgetGivenUp(k.key()) || !k.kept && r.noteMissing(began) == nil
	}
	if q.Forget != nil {
		q.Forget(k.key())
	}
	r.anyPool(func(p *worker.Inspector) bool { p.Forget(k.key()); return true })
	return was
}

// actOnGroup does it with the group that form names. It returns done, and that no key has that group if that
// is so: its name may be mistyped.
func (r *reading) actOnGroup(do func(group string), form url.Values, done string) (string, error) {
	if !form.Has("group") {
		return "", refuse(http.StatusBadRequest, "The form lacks the field group.")
	}
	group := form.Get("group")
	do(group)
	if of := r.entry.queue.SnapshotGroup; of != nil && of(group).Keys == 0 {
		done += " No key has that group now: is it called so?"
	}
	return done, nil
}
