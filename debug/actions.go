package debug

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"

	"github.com/keyedqueue/workqueue"
)

// Action is a request to change a queue.
type Action struct {
	// Name is "retry", "forget", "remove", "cancel", "pause", "resume", "pause_group" or "resume_group", or whatever else
	// was asked for.
	Name string
	// Queue is the id of the queue, Key the text of the key, and Group the name of the group, if there is one. They are
	// printable, and long ones are cut, as what follows.
	Queue, Key, Group string
	// Of is the set of keys that an action on many keys is for, and ErrorContains the text that their errors contain.
	Of, ErrorContains string
	// Keys is to how many keys it was done.
	Keys int
	// Err is why nothing was done, or not all, or nil.
	Err error
}

// actionHeader is what a request for an action needs: browsers let scripts of other sites send it only if the server
// agrees beforehand, and forms cannot send it at all.
const actionHeader = "X-Workqueue-Action"

// actionSet is what the page offers for a queue, or for a key.
type actionSet struct{ Retry, Remove, Forget, Cancel, Pause, PauseGroup bool }

func (h *Handler) actionsOf(r *reading) actionSet {
	if h.audit == nil {
		return actionSet{}
	}
	q := r.entry.queue
	knows := func(f func(*pool) bool) bool {
		return slices.ContainsFunc(r.pools, func(p poolReading) bool { return f(p.pool) })
	}
	return actionSet{
		Retry: q.Add != nil && !r.stats.ShuttingDown, Remove: q.Remove != nil, Pause: q.Pause != nil, PauseGroup: q.PauseGroup != nil,
		Forget: q.Forget != nil || q.ForgetGivenUp != nil || knows(func(p *pool) bool { return p.Forget != nil }),
		Cancel: knows(func(p *pool) bool { return p.Cancel != nil }),
	}
}

// forKey returns what can be done with k.
func (a actionSet) forKey(k keyReport) actionSet {
	running := k.State == string(workqueue.KeyProcessing)
	a.Cancel = a.Cancel && running
	a.Forget = a.Forget && (k.Error != "" || k.Requeues > 0 || k.State == stateGivenUp || k.State == stateFailing)
	a.Remove = a.Remove && k.State != stateGivenUp && k.State != stateFailing
	a.PauseGroup = a.PauseGroup && k.Group != ""
	return a
}

// actionError is why an action was refused or impossible, with the status of the answer.
type actionError struct {
	status int
	text   string
}

func (e *actionError) Error() string { return e.text }

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
	Error string `json:"error,omitempty"`
}

// maxForm bounds the size of a request for an action.
const maxForm = 64 << 10

// serveAction does what a POST asks for, and reports it to the audit hook.
func (h *Handler) serveAction(w http.ResponseWriter, r *http.Request) (status int, report actionReport) {
	err := checkOrigin(r)
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if formErr := r.ParseForm(); formErr != nil {
		err = cmp.Or(err, refuse(http.StatusBadRequest, "The form cannot be read."))
	}
	form := r.PostForm
	short := func(field string, limit int) string { return newLabel(form.Get(field), limit).short() }
	a := Action{
		Name: short("action", maxName), Queue: short("queue", maxName), Key: short("key", maxKey), Group: short("group", maxName),
		Of: short("of", maxName), ErrorContains: short("error", maxKey),
	}
	report = actionReport{Action: a.Name, Queue: a.Queue, Key: a.Key, Group: a.Group}
	if err == nil {
		report.bulkResult, err = h.act(r.Context(), form)
	}
	a.Err = err
	switch {
	case report.bulkResult != nil:
		a.Keys = report.Keys
	case err == nil && form.Has("key"):
		a.Keys = 1
	}
	h.audit(r, a)
	if err == nil {
		return http.StatusOK, report
	}
	report.Error = err.Error()
	status = http.StatusInternalServerError
	if e, ok := err.(*actionError); ok {
		status = e.status
	}
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

// act does what form asks for. The result is nil unless that was for many keys.
func (h *Handler) act(ctx context.Context, form url.Values) (result *bulkResult, err error) {
	e := h.find(form.Get("queue"))
	if e == nil {
		return nil, refuse(http.StatusNotFound, "No such queue is registered.")
	}
	r := h.readOne(ctx, e, searchLimit)
	q, can := e.queue, h.actionsOf(r)
	hasKey, many := form.Has("key"), form.Has("of")
	panicked := guarded("queue", func() {
		switch action := form.Get("action"); {
		case action == "pause" && can.Pause:
			q.Pause()
		case action == "resume" && can.Pause:
			q.Resume()
		case action == "pause_group" && can.PauseGroup && form.Has("group"):
			q.PauseGroup(r.groupCalled(form.Get("group")))
		case action == "resume_group" && can.PauseGroup && form.Has("group"):
			q.ResumeGroup(r.groupCalled(form.Get("group")))
		case action == "retry" && r.stats.ShuttingDown:
			err = refuse(http.StatusConflict, "The queue is shut down: it takes no more keys.")
		case many && (action == "retry" && can.Retry || action == "forget" && can.Forget):
			result, err = h.actOnMany(ctx, r, form)
		case action == "retry" && can.Retry && hasKey:
			err = h.actOnKey(ctx, r, form, func(key any) error {
				if !r.retry(key, true) {
					r.retry(key, false)
				}
				return r.checkTaken([]any{key}, new(bulkResult))
			})
		case action == "forget" && can.Forget && hasKey:
			err = h.actOnKey(ctx, r, form, func(key any) error { r.forget(key, true); return nil })
		case action == "cancel" && can.Cancel && hasKey:
			err = h.actOnKey(ctx, r, form, func(key any) error {
				if !r.cancel(key) {
					return refuse(http.StatusNotFound, "No handler has the key.")
				}
				return nil
			})
		case action == "remove" && can.Remove && hasKey:
			err = h.actOnKey(ctx, r, form, func(key any) error {
				if !q.Remove(key) {
					return refuse(http.StatusNotFound, "The key was not in the queue.")
				}
				return nil
			})
		default:
			err = refuse(http.StatusBadRequest, "This queue has no such action.")
		}
	})
	return result, cmp.Or(err, panicked)
}

// actOnKey calls act with the key that form names.
func (h *Handler) actOnKey(ctx context.Context, r *reading, form url.Values, act func(key any) error) error {
	found := h.search(ctx, h.acting, r, form.Get("key"), form.Get("id"))
	switch {
	case r.late:
		return refuse(http.StatusServiceUnavailable, "The queue does not answer.")
	case cmp.Or(r.panicked, found.failure) != nil:
		return cmp.Or(r.panicked, found.failure)
	case found.Incomplete:
		return refuse(http.StatusServiceUnavailable, "There was no time to look at all keys.")
	case !found.Exact || found.Keys[0].State == stateAbsent:
		return refuse(http.StatusNotFound, "No key is called that.")
	case len(found.Keys) > 1:
		return refuse(http.StatusConflict, "More than one key is called that.")
	}
	return act(found.Keys[0].raw)
}

// retry adds key now. If the queue itself keeps it as given up, the queue retries it; then false means that it was gone.
func (r *reading) retry(key any, kept bool) bool {
	q := r.entry.queue
	switch {
	case kept && q.RetryGivenUp != nil:
		return q.RetryGivenUp(key)
	case q.AddCause != nil:
		q.AddCause(key, workqueue.Cause{Reason: "retried by hand"})
	default:
		q.Add(key)
	}
	return true
}

// forget makes the queue's limiter, the pools and, if the queue itself keeps it as given up, the queue forget key's failures.
// It returns false if the queue does not keep it any more.
func (r *reading) forget(key any, kept bool) bool {
	q := r.entry.queue
	was := !kept || q.ForgetGivenUp == nil || q.ForgetGivenUp(key)
	if q.Forget != nil {
		q.Forget(key)
	}
	for _, p := range r.pools {
		if p.pool.Forget != nil {
			_ = guarded("pool", func() { p.pool.Forget(key) }) // See lookUp.
		}
	}
	return was
}

// cancel ends the context of the handler that has key, and reports whether there is one.
func (r *reading) cancel(key any) (done bool) {
	for _, p := range r.pools {
		if p.pool.Cancel != nil {
			_ = guarded("pool", func() { done = p.pool.Cancel(key) || done })
		}
	}
	return done
}

// checkTaken returns an error if the queue has been shut down before it took all of keys, which were added. The others do
// not count as retried.
func (r *reading) checkTaken(keys []any, b *bulkResult) error {
	q := r.entry.queue
	if len(keys) == 0 || !q.Stats().ShuttingDown {
		return nil
	}
	refused := 0
	for _, key := range keys {
		taken := false
		if q.SnapshotKey != nil {
			k, found := q.SnapshotKey(key)
			taken = found && (k.State == workqueue.KeyQueued || k.State == workqueue.KeyProcessing && k.Again)
		}
		if !taken {
			refused++
		}
	}
	b.Keys, b.Left = b.Keys-refused, b.Left+refused
	return refuse(http.StatusConflict, "The queue was shut down meanwhile, and takes no more keys.")
}

// groupCalled returns the group that the page shows as text, or text itself.
func (r *reading) groupCalled(text string) string {
	groups := slices.Clone(r.pausedGroups)
	if r.keys != nil {
		for _, keys := range [][]workqueue.KeySnapshot[any]{r.keys.Processing, r.keys.Queued, r.keys.Waiting, r.keys.Failing} {
			for _, k := range keys {
				groups = append(groups, k.Group)
			}
		}
	}
	if i := slices.IndexFunc(groups, func(g string) bool { return newLabel(g, maxName).short() == text }); i >= 0 {
		return groups[i]
	}
	return text
}

// logAction is the audit hook of a program that has none.
func logAction(r *http.Request, a Action) {
	log := slog.With("action", a.Name, "queue", a.Queue, "key", a.Key, "remote", r.RemoteAddr)
	if a.Group != "" {
		log = log.With("group", a.Group)
	}
	if a.Of != "" {
		log = log.With("of", a.Of, "errorContains", a.ErrorContains, "keys", a.Keys)
	}
	if a.Err != nil {
		log.WarnContext(r.Context(), "workqueue/debug: an action was not done", "error", a.Err)
		return
	}
	log.InfoContext(r.Context(), "workqueue/debug: an action was done")
}
