package debug

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// ServeHTTP answers GET and HEAD, and nothing else. The path does not matter.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "Only GET and HEAD: nothing can be changed here.", http.StatusMethodNotAllowed)
		return
	}
	status, template, report := h.answer(r)
	var body bytes.Buffer
	var err error
	if prefersJSON(r.Header.Values("Accept")) {
		w.Header().Set("Content-Type", "application/json")
		err = json.NewEncoder(&body).Encode(report)
	} else {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		err = pages.ExecuteTemplate(&body, template, report)
	}
	if err != nil {
		http.Error(w, "The page cannot be made.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(status)
	if r.Method == http.MethodGet {
		_, _ = w.Write(body.Bytes()) // Whoever asked has gone.
	}
}

// errorReport is what is told of a queue that is not there.
type errorReport struct {
	Error string `json:"error"`
}

func (h *Handler) answer(r *http.Request) (status int, template string, report any) {
	query := r.URL.Query()
	if !query.Has("queue") {
		return http.StatusOK, "list", h.list(query)
	}
	if d := h.detail(query); d != nil {
		return http.StatusOK, "detail", d
	}
	id := newLabel(query.Get("queue"), maxName).Text
	return http.StatusNotFound, "gone", errorReport{fmt.Sprintf("No queue %s is registered, or none is any more.", id)}
}

// setHeaders forbids all that the page does not need: whatever a key might smuggle in finds nothing to
// load, nowhere to send to, and no frame around it.
func setHeaders(header http.Header) {
	for _, h := range [][2]string{
		{"Content-Security-Policy", contentSecurityPolicy},
		{"X-Frame-Options", "DENY"},
		{"X-Content-Type-Options", "nosniff"},
		{"Referrer-Policy", "no-referrer"},
		{"Cross-Origin-Resource-Policy", "same-origin"},
		{"Cross-Origin-Opener-Policy", "same-origin"},
		{"Cache-Control", "no-store"},
		{"Vary", "Accept"},
	} {
		header.Set(h[0], h[1])
	}
}

// prefersJSON tells whether an Accept header names application/json, and rates it above text/html.
func prefersJSON(accept []string) bool {
	rating := map[string]float64{}
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		name, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		q := 1.0
		if s, ok := params["q"]; ok {
			if q, err = strconv.ParseFloat(s, 64); err != nil {
				q = 0
			}
		}
		rating[name] = q
	}
	return rating["application/json"] > rating["text/html"]
}
