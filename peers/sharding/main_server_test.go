package main

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	core "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/keyedqueue/workqueue/sharding"
)

// server keeps Leases, and counts requests.
type server struct {
	requests atomic.Int64
	records  sharding.Store // of the approach that does not use Leases by itself

	mu      sync.Mutex // guards what follows
	leases  map[string]*coordinationv1.Lease
	version int
}

func newServer() *server {
	return &server{records: sharding.Memory(), leases: make(map[string]*coordinationv1.Lease)}
}

// connection is a replica's to the server. It is cut when the replica has crashed.
type connection struct {
	isCut atomic.Bool
}

func (s *server) pass(c *connection) error {
	if c.isCut.Load() {
		return errors.New("no connection")
	}
	s.requests.Add(1)
	return nil
}

// client is what leader elections use of a clientset.
type client struct {
	kubernetes.Interface
	coordination.CoordinationV1Interface
	coordination.LeaseInterface

	server     *server
	connection *connection
}

func (s *server) client(c *connection) *client { return &client{server: s, connection: c} }

func (c *client) CoordinationV1() coordination.CoordinationV1Interface { return c }
func (c *client) CoreV1() core.CoreV1Interface                         { return nil } // Knative asks for it.
func (c *client) Leases(string) coordination.LeaseInterface            { return c }

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

func (c *client) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	if err := c.server.pass(c.connection); err != nil {
		return nil, err
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if l := c.server.leases[name]; l != nil {
		return l.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(leases, name)
}

func (c *client) Create(_ context.Context, l *coordinationv1.Lease,
	_ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return c.put(l, func(now *coordinationv1.Lease) error {
		if now != nil {
			return apierrors.NewAlreadyExists(leases, l.Name)
		}
		return nil
	})
}

func (c *client) Update(_ context.Context, l *coordinationv1.Lease,
	_ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return c.put(l, func(now *coordinationv1.Lease) error {
		if now == nil || now.ResourceVersion != l.ResourceVersion {
			return apierrors.NewConflict(leases, l.Name, nil)
		}
		return nil
	})
}

func (c *client) put(l *coordinationv1.Lease,
	check func(now *coordinationv1.Lease) error) (*coordinationv1.Lease, error) {
	s := c.server
	if err := s.pass(c.connection); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := check(s.leases[l.Name]); err != nil {
		return nil, err
	}
	s.version++
	l = l.DeepCopy()
	l.ResourceVersion = strconv.Itoa(s.version)
	s.leases[l.Name] = l
	return l.DeepCopy(), nil
}

// store is a replica's access to the records of package sharding.
type store struct {
	sharding.Store
	server     *server
	connection *connection
}

func (s *server) store(c *connection) *store { return &store{s.records, s, c} }

func (s *store) Get(ctx context.Context, name string) (r sharding.Record, err error) {
	if err = s.server.pass(s.connection); err == nil {
		r, err = s.Store.Get(ctx, name)
	}
	return r, err
}

func (s *store) List(ctx context.Context, group string) (records []sharding.Record, version string,
	err error) {
	if err = s.server.pass(s.connection); err == nil {
		records, version, err = s.Store.List(ctx, group)
	}
	return records, version, err
}

func (s *store) Watch(ctx context.Context, group, version string, changed func(sharding.Event)) error {
	if err := s.server.pass(s.connection); err != nil {
		return err
	}
	return s.Store.Watch(ctx, group, version, changed)
}

func (s *store) Create(ctx context.Context, r sharding.Record) (sharding.Record, error) {
	if err := s.server.pass(s.connection); err != nil {
		return r, err
	}
	return s.Store.Create(ctx, r)
}

func (s *store) Update(ctx context.Context, r sharding.Record) (sharding.Record, error) {
	if err := s.server.pass(s.connection); err != nil {
		return r, err
	}
	return s.Store.Update(ctx, r)
}

func (s *store) Delete(ctx context.Context, name, version string) error {
	if err := s.server.pass(s.connection); err != nil {
		return err
	}
	return s.Store.Delete(ctx, name, version)
}
