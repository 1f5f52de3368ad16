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

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/prom"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// A server shows over HTTP what is in the queue, to people and to Prometheus, from before the first key until after the last one.
type server struct {
	listener net.Listener
	// metrics reads the queue for Prometheus. A queue with metrics knows since when a key is there, which
	// the page tells too.
	metrics  workqueue.MetricsProvider
	registry *prometheus.Registry
	page     *debug.Handler
	http     http.Server
	serving  sync.WaitGroup
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
		metrics:  prom.NewProvider(registry, prom.Options{}),
		registry: registry,
		page:     debug.NewHandler(debug.Options{}),
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

// serve shows q until close.
func (s *server) serve(q queue, rep *report) {
	debug.Register(s.page, "", q)
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
