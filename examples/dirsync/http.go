package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/prom"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// A server shows over HTTP what is in the queue, to people and to Prometheus, from before the first key until after the last one.
type server struct {
	listener net.Listener
	registry *prometheus.Registry
	// page is the queue's and the workers' provider of metrics, so it shows both by itself. What it hears of it passes
	// on to Prometheus.
	page    *debug.Handler
	http    http.Server
	serving sync.WaitGroup
}

const (
	pagePath    = "/debug/workqueue"
	metricsPath = "/metrics"
)

// newServer listens at addr, and answers only once it serves: an address that cannot be had is known
// before any work is begun.
func newServer(addr string) (*server, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("-http %s: %w", addr, err)
	}
	registry := prometheus.NewRegistry()
	s := &server{
		listener: listener,
		registry: registry,
		page:     debug.NewHandler(debug.Options{Metrics: prom.NewProvider(registry, prom.Options{})}),
	}
	s.http = http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: 5 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0), // what clients do wrong is not our user's business
	}
	return s, nil
}

func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(pagePath, s.page)
	mux.Handle("GET "+metricsPath, promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}))
	mux.Handle("/{$}", http.RedirectHandler(pagePath, http.StatusFound))
	return mux
}

// serve answers until close.
func (s *server) serve(rep *report) {
	s.serving.Go(func() {
		if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			rep.say("-http: %v", err)
		}
	})
	rep.say("the queue is shown at http://%s%s", s.listener.Addr(), pagePath)
}

// close lets requests that are being answered end, but not for long.
func (s *server) close() {
	limit, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.http.Shutdown(limit) != nil {
		s.http.Close()
	}
	s.listener.Close() // which the server does not know if it has not served
	s.serving.Wait()
	s.page.Close()
}
