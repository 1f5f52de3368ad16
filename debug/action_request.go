package debug

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/keyedqueue/workqueue/operate"
)

// Action is a request to change a queue.
type Action struct {
	// Name is "retry", "forget", "remove", "cancel", "release", "pause", "resume", "pause_group" or
	// "resume_group", or another text that was asked for.
	Name string
	// Queue is the id of the queue, Key the text of the key, and Group the name of the group, if there is one.
	// All texts are printable, and cut if they are long.
	Queue, Key, Group string
	// Of is the set of keys that an action on many keys is for, and ErrorContains the text that their errors
	// contain.
	Of, ErrorContains string
	// For is how long a pause lasts, or zero without an end.
	For time.Duration
	// Keys counts the keys that were changed, Left those that were not reached.
	Keys, Left int
	// Err is why nothing was done, or not all, or nil.
	Err error
}

// String returns what was asked for and what came of it, in one line: retry orders key="acme/17" keys=1.
func (a Action) String() string {
	return word(a.Name) + " " + word(a.Queue) +
		when(a.Key != "", fmt.Sprintf(" key=%q", a.Key)) +
		when(a.Group != "", fmt.Sprintf(" group=%q", a.Group)) +
		when(a.Of != "", fmt.Sprintf(" of=%q", a.Of)) +
		when(a.ErrorContains != "", fmt.Sprintf(" errorContains=%q", a.ErrorContains)) +
		when(a.For > 0, fmt.Sprint(" for=", a.For)) +
		when(a.Key != "" || a.Of != "", fmt.Sprint(" keys=", a.Keys)) +
		when(a.Left > 0, fmt.Sprint(" left=", a.Left)) +
		when(a.Err != nil, fmt.Sprint(": ", a.Err))
}

// word returns text, quoted unless it is one word.
func word(text string) string {
	if text == "" || strings.ContainsAny(text, ` ="`) {
		return strconv.Quote(text)
	}
	return text
}

// logAction is the audit hook of a program that has none.
func logAction(r *http.Request, a Action) {
	slog.InfoContext(r.Context(), "workqueue/debug: an action", "action", a.String(), "remote", r.RemoteAddr)
}

// actionError is why something was refused or impossible, with the status of the answer.
type actionError struct {
	status int
	text   string
}

func (e *actionError) Error() string { return e.text }

func refuse(status int, format string, args ...any) error {
	return &actionError{status, fmt.Sprintf(format, args...)}
}

// statusOf returns the status of the answer that reports err, which is an actionError or nil.
func statusOf(err error) int {
	if err == nil {
		return http.StatusOK
	}
	return err.(*actionError).status
}

const (
	// actionHeader is what a request for an action needs: browsers let scripts of other sites send it only if
	// the server agrees beforehand, and forms cannot send it at all.
	actionHeader = "X-Workqueue-Action"
	// maxForm bounds the size of a request for an action.
	maxForm = 512 << 10
)

var crossOrigin = http.NewCrossOriginProtection()

// serveAction does what a POST asks for, and reports it to the audit hook.
func (h *Handler) serveAction(w http.ResponseWriter, r *http.Request) (status int, answer actionAnswer) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	a, err := parseAction(r)
	answer = actionAnswer{Action: a.Name, Queue: a.Queue, Key: a.Key, Group: a.Group}
	if err == nil {
		answer.outcome, answer.Text, err = h.act(r.Context(), a, r.PostForm)
	}
	a.Keys, a.Left = answer.Keys, answer.Left
	if a.Err = err; err != nil {
		answer.Error = err.Error()
	}
	h.audit(r, a)
	return statusOf(err), answer
}

// parseAction returns what a POST asks for, or an error if another site may have sent it, or it cannot be
// read.
func parseAction(r *http.Request) (a Action, err error) {
	formErr := r.ParseForm()
	form := r.PostForm
	a = Action{
		Name: short(form.Get("action"), maxName), Queue: short(form.Get("queue"), maxName),
		Key: short(form.Get("key"), maxKeyBytes), Group: short(form.Get("group"), maxName),
		Of: short(form.Get("of"), maxName), ErrorContains: short(form.Get("error"), maxKeyBytes),
	}
	a.For, _ = time.ParseDuration(form.Get("for"))
	switch {
	case crossOrigin.Check(r) != nil:
		err = refuse(http.StatusForbidden, "The request comes from another site.")
	case r.Header.Get(actionHeader) == "":
		err = refuse(http.StatusForbidden, "The request lacks the header %s.", actionHeader)
	case formErr != nil:
		err = refuse(http.StatusBadRequest, "The form cannot be read.")
	case form.Get("for") != "" && a.For <= 0:
		err = refuse(http.StatusBadRequest, "The field for is not a duration above zero: write it like 15m.")
	case !form.Has("queue"): // It may be in the query, or in a body of another type.
		err = refuse(http.StatusBadRequest,
			"The request has no form (application/x-www-form-urlencoded) with the field queue.")
	}
	return a, err
}

// act carries out a, whose texts form has uncut. Text says what was done.
func (h *Handler) act(ctx context.Context, a Action, form url.Values) (o outcome, text string, err error) {
	e := h.find(form.Get("queue"))
	if e == nil {
		return o, "", refuse(http.StatusNotFound, "No such queue is registered.")
	}
	ctx, cancel := context.WithTimeout(ctx, actionTime+countTime)
	defer cancel()
	r, do := h.read(ctx, e), actionNamed(form.Get("action"))
	switch {
	case do != nil && do.ifShutDown != "" && r.Stats.ShuttingDown:
		err = refuse(http.StatusConflict, "%s", do.ifShutDown)
	case do == nil || !do.isPossible(r):
		err = refuse(http.StatusBadRequest, "This queue has no such action: removing needs a "+
			"priorityqueue or a redisqueue, pausing one of them or a worker.Pool, canceling and releasing a pool.")
	case do.ofGroup && !form.Has("group"):
		err = refuse(http.StatusBadRequest, "The form lacks the field group.")
	case do.toQueue != nil:
		do.toQueue(r, form.Get("group"), cmp.Or(a.For, operate.UntilResumed))
		text = do.pauseText(r, form.Get("group"), a.For)
	case len(form["key"]) > 1:
		err = refuse(http.StatusBadRequest, "The form has more than one field key.")
	case form.Has("key") && form.Has("of"):
		err = refuse(http.StatusBadRequest, "The form has both key and of.")
	case form.Has("key") || form.Has("of") && do.ForAll != "":
		o, text, err = r.actOnKeys(do, form)
	default:
		err = refuse(http.StatusBadRequest, "The form lacks the field key (or, for retry and forget, of).")
	}
	return o, text, err
}
