package debug

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// ServeHTTP answers GET and HEAD and, if Options.Actions is set, POST. The path does not matter.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	allow := "GET, HEAD"
	if h.audit != nil {
		allow += ", POST"
	}
	switch {
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		status, template, report := h.answer(r)
		if wantsJSON(r) {
			template = ""
		}
		write(w, r, status, template, report)
	case r.Method == http.MethodPost && h.audit != nil:
		status, report := h.serveAction(w, r)
		write(w, r, status, "", report)
	default:
		w.Header().Set("Allow", allow)
		text := "Only " + allow + "."
		if h.audit == nil {
			text += " To change something, set debug.Options.Actions."
		}
		http.Error(w, text, http.StatusMethodNotAllowed)
	}
}

// write answers with a report: as the page of that template, or as JSON without one.
func write(w http.ResponseWriter, r *http.Request, status int, template string, report any) {
	var body bytes.Buffer
	var err error
	if template == "" {
		w.Header().Set("Content-Type", "application/json")
		err = json.NewEncoder(&body).Encode(report)
	} else {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		err = pages[template].ExecuteTemplate(&body, "layout", report)
	}
	if err != nil {
		http.Error(w, "The page cannot be made.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body.Bytes()) // An error means that the client has gone.
	}
}

// wantsJSON reports whether format=json is in the query or, without a format, the Accept header names
// application/json and rates it above text/html.
func wantsJSON(r *http.Request) bool {
	switch r.URL.Query().Get("format") {
	case "json":
		return true
	case "html":
		return false
	}
	rating := map[string]float64{}
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		name, params, _ := mime.ParseMediaType(part)
		rating[name], _ = strconv.ParseFloat(cmp.Or(params["q"], "1"), 64)
	}
	return rating["application/json"] > rating["text/html"]
}

// nothing is why there is nothing to show.
type nothing struct {
	Title string `json:"-"`
	Error string `json:"error"`
}

func (nothing) Refresh() int     { return refreshSeconds }
func (nothing) HrefJSON() string { return "" }

// answer returns the report that r asks for, and the template of its page.
func (h *Handler) answer(r *http.Request) (status int, template string, report any) {
	query, ctx := r.URL.Query(), r.Context()
	if !query.Has("queue") {
		if query.Has("key") {
			return http.StatusOK, "find", h.findPage(ctx, query.Get("key"))
		}
		return http.StatusOK, "list", h.listPage(query)
	}
	e := h.find(query.Get("queue"))
	switch {
	case e == nil:
		gone := fmt.Sprintf("No queue %s is registered, or none is any more.", cut(query.Get("queue"), maxName))
		return http.StatusNotFound, "gone", nothing{"No such queue", gone}
	case query.Has("count"):
		status, report := h.countReport(ctx, e, query)
		return status, "", report
	case query.Has("state") && sectionOf(query.Get("state")) < 0:
		states := "The states of keys are processing, on_hold, queued, waiting, failing and given_up."
		return http.StatusBadRequest, "gone", nothing{"No such state", states}
	case query.Has("state"):
		return http.StatusOK, "keys", h.keysPage(ctx, e, query)
	case query.Has("key") && query.Has("id"):
		return http.StatusOK, "key", h.keyPage(ctx, e, query)
	}
	return http.StatusOK, "queue", h.queuePage(ctx, e, query)
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
	header.Set("Vary", "Accept")
}
