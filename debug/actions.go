package debug

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"

	"github.com/keyedqueue/workqueue"
)

// Action is a request to change a queue.
type Action struct {
	// Name is "retry", "remove", "pause" or "resume", or whatever else was asked for.
	Name string
	// Queue is the id of the queue, and Key the text of the key, if there is one. They are printable, and long
	// ones are cut.
	Queue, Key string
	// Err is why nothing was done, or nil.
	Err error
}

// actionHeader is what a request for an action needs: browsers let scripts of other sites send it only if the server
// agrees beforehand, and forms cannot send it at all.
const actionHeader = "X-Workqueue-Action"

// actionSet is what the page offers for a queue.
type actionSet struct{ Retry, Remove, Pause bool }

func (h *Handler) actionsOf(e *entry, s workqueue.Stats) actionSet {
	if h.audit == nil {
		return actionSet{}
	}
	return actionSet{Retry: e.queue.Add != nil && !s.ShuttingDown, Remove: e.queue.Remove != nil, Pause: e.queue.Pause != nil}
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
	Error  string `json:"error,omitempty"`
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
	if err == nil {
		err = h.act(r.Context(), form)
	}
	a := Action{
		Name:  newLabel(form.Get("action"), maxName).short(),
		Queue: newLabel(form.Get("queue"), maxName).short(),
		Key:   newLabel(form.Get("key"), maxKey).short(),
		Err:   err,
	}
	h.audit(r, a)
	report = actionReport{Action: a.Name, Queue: a.Queue, Key: a.Key}
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

func (h *Handler) act(ctx context.Context, form url.Values) error {
	e := h.find(form.Get("queue"))
	if e == nil {
		return refuse(http.StatusNotFound, "No such queue is registered.")
	}
	r := h.readOne(ctx, e, searchLimit)
	q, can := e.queue, h.actionsOf(e, r.stats)
	var err error
	panicked := guarded("queue", func() {
		switch action := form.Get("action"); {
		case action == "pause" && can.Pause:
			q.Pause()
		case action == "resume" && can.Pause:
			q.Resume()
		case action == "retry" && r.stats.ShuttingDown:
			err = refuse(http.StatusConflict, "The queue is shut down: it takes no more keys.")
		case action == "retry" && can.Retry && form.Has("key"):
			err = h.actOnKey(ctx, r, form.Get("key"), func(key any) bool { q.Add(key); return true })
		case action == "remove" && can.Remove && form.Has("key"):
			err = h.actOnKey(ctx, r, form.Get("key"), q.Remove)
		default:
			err = refuse(http.StatusBadRequest, "This queue has no such action.")
		}
	})
	return cmp.Or(err, panicked)
}

// actOnKey calls act with the key that is called text.
func (h *Handler) actOnKey(ctx context.Context, r *reading, text string, act func(key any) bool) error {
	known := r.poolKeys()
	found := h.search(ctx, r.entry, newKeyLists(r.keys, known), known, text)
	switch {
	case r.late:
		return refuse(http.StatusServiceUnavailable, "The queue does not answer.")
	case r.panicked != nil:
		return r.panicked
	case found.Incomplete:
		return refuse(http.StatusServiceUnavailable, "There was no time to look at all keys.")
	case !found.Exact:
		return refuse(http.StatusNotFound, "No key is called that.")
	case len(found.Keys) > 1:
		return refuse(http.StatusConflict, "More than one key is called that.")
	case !act(found.Keys[0].raw):
		return refuse(http.StatusNotFound, "The key was not in the queue.")
	}
	return nil
}

// logAction is the audit hook of a program that has none.
func logAction(r *http.Request, a Action) {
	log := slog.With("action", a.Name, "queue", a.Queue, "key", a.Key, "remote", r.RemoteAddr)
	if a.Err != nil {
		log.WarnContext(r.Context(), "workqueue/debug: an action was not done", "error", a.Err)
		return
	}
	log.InfoContext(r.Context(), "workqueue/debug: an action was done")
}
