package debug

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"
)

// A request becomes a page in these steps:
//
//  1. answer finds the queue in the registry by its id, and makes a reading of its and its pools' numbers.
//  2. A page needs keys, each as a knownKey, which has what the queue and the pools say of it. readKeys adds
//     the first keys of each state to the reading; a keyWalk goes over all that match an error or a search.
//  3. The page's function in page_*.go makes its model of the reading and of keyRows, with printable texts.
//  4. The model's template in templates, within the layout, makes HTML; with format=json its object is JSON.
//  5. A POST is an action: actOnKeys finds the same knownKeys, and does to each what the table actions says.

// ServeHTTP answers GET and HEAD and, if Options.Actions is set, POST. The path does not matter.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	allow := "GET, HEAD"
	if h.audit != nil {
		allow += ", POST"
	}
	switch {
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		status, template, model := h.answer(r)
		if r.URL.Query().Get("format") == "json" {
			template = ""
		}
		respond(w, r, status, template, model)
	case r.Method == http.MethodPost && h.audit != nil:
		status, answer := h.serveAction(w, r)
		respond(w, r, status, "", page{json: answer})
	default:
		w.Header().Set("Allow", allow)
		text := "Only " + allow + "."
		if h.audit == nil {
			text += " To change something, set debug.Options.Actions."
		}
		http.Error(w, text, http.StatusMethodNotAllowed)
	}
}

// model is what a template makes a page of.
type model interface{ asJSON() any }

// respond writes a page, as JSON without a template.
func respond(w http.ResponseWriter, r *http.Request, status int, template string, m model) {
	var body bytes.Buffer
	contentType, err := "text/html; charset=utf-8", error(nil)
	if template == "" {
		contentType, err = "application/json", json.NewEncoder(&body).Encode(m.asJSON())
	} else {
		err = pages[template].ExecuteTemplate(&body, "layout", m)
	}
	if err != nil {
		slog.ErrorContext(r.Context(), "workqueue/debug: a page cannot be made", "url", r.URL.String(), "err", err)
		http.Error(w, "The page cannot be made.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // An error means that the client has gone, or asked for the HEAD alone.
}

const (
	// pageTime is how long a page may take, and searchTime a page that may search all keys of a queue.
	// A million keys take less than a second.
	pageTime   = 5 * time.Second
	searchTime = time.Minute
)

// answer returns the page that r asks for, and its template if it can be HTML.
func (h *Handler) answer(r *http.Request) (status int, template string, m model) {
	query, limit := r.URL.Query(), pageTime
	if query.Has("key") {
		limit = searchTime
	}
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	if !query.Has("queue") {
		return http.StatusOK, "list", h.listPage(ctx, query)
	}
	e := h.find(query.Get("queue"))
	switch {
	case e == nil:
		gone := fmt.Sprintf("No queue %s is registered, or it has ended.", cut(query.Get("queue"), maxName))
		return http.StatusNotFound, "gone", newGonePage("No such queue", gone)
	case query.Has("count"):
		status, counted := h.countPage(h.read(ctx, e), query)
		return status, "", counted
	case query.Has("state"):
		of, isState := sectionOf(query.Get("state"))
		if !isState {
			states := "The states of keys are processing, on_hold, queued, waiting, failing and given_up."
			return http.StatusBadRequest, "gone", newGonePage("No such state", states)
		}
		return http.StatusOK, "keys", h.keysPage(h.read(ctx, e), of, query)
	case query.Has("key"):
		return http.StatusOK, "key", h.keyPage(h.read(ctx, e), query)
	}
	return http.StatusOK, "queue", h.queuePage(h.read(ctx, e))
}

// setHeaders forbids all that the page does not need: what a key might smuggle in finds nothing to
// load, nowhere to send to, and no frame around it.
func setHeaders(header http.Header) {
	header.Set("Content-Security-Policy", contentSecurityPolicy)
	header.Set("X-Frame-Options", "DENY")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
}
