package sharding

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// simServer keeps Leases as the API server does, also where that is a trap: an update of a Lease that does
// not exist creates it, unless the update names a UID, and an update without a resource version is
// unconditional.
type simServer struct {
	coordination.LeaseInterface // for the methods that are not needed

	mu      sync.Mutex // guards what follows
	leases  map[string]*coordinationv1.Lease
	version int
	// events has the last changes, the newest of that version. changed is closed at the next one.
	events  []watch.Event
	changed chan struct{}
	// restores counts how often the server went back to an earlier state, which ends all watches.
	restores int
	uids     int
	away     atomic.Bool
	forbids  func(verb string) bool // nil if it forbids nothing
}

// check returns an error if the server forbids the verb.
func (s *simServer) check(verb string) error {
	if s.forbids != nil && s.forbids(verb) {
		return apierrors.NewForbidden(leaseResource, "", errors.New("cannot "+verb+" leases"))
	}
	return nil
}

func newSimServer() *simServer {
	return &simServer{leases: make(map[string]*coordinationv1.Lease), changed: make(chan struct{})}
}

// Leases makes it a [coordination.LeasesGetter].
func (s *simServer) Leases(string) coordination.LeaseInterface { return s }

var leaseResource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

func (s *simServer) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	if err := s.check("get"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.leases[name]; l != nil {
		return l.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(leaseResource, name)
}

func (s *simServer) List(context.Context, metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	if err := s.check("list"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	list := &coordinationv1.LeaseList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}}
	for _, l := range s.leases {
		if l.Labels[groupLabel] == "g" {
			list.Items = append(list.Items, *l.DeepCopy())
		}
	}
	return list, nil
}

// backup is a state of the server.
type backup struct {
	leases  map[string]*coordinationv1.Lease
	version int
}

func (s *simServer) backup() backup {
	s.mu.Lock()
	defer s.mu.Unlock()
	return backup{maps.Clone(s.leases), s.version}
}

// restore takes the server back to a backup, as a snapshot of etcd does: versions repeat, unless they are
// raised.
func (s *simServer) restore(b backup, raise int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases, s.version = maps.Clone(b.leases), b.version
	if raise > 0 {
		s.version += raise
	}
	s.restores++
	s.events = nil
	close(s.changed)
	s.changed = make(chan struct{})
}

// edit changes a Lease as a person with kubectl does. It reports whether it is there.
func (s *simServer) edit(name string, change func(*coordinationv1.Lease)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[name]
	if l == nil {
		return false
	}
	before := l
	l = l.DeepCopy()
	change(l)
	s.storeLocked(before, l)
	return true
}

// storeLocked stores l instead of before. A watch sees a Lease that has lost its label as deleted.
func (s *simServer) storeLocked(before, l *coordinationv1.Lease) *coordinationv1.Lease {
	change := watch.Modified
	switch was, is := before.Labels[groupLabel] != "", l.Labels[groupLabel] != ""; {
	case was && !is:
		change = watch.Deleted
	case !was && is:
		change = watch.Added
	case !was && !is:
		change = "" // It is not in the watch.
	}
	return s.putLocked(change, l)
}

func (s *simServer) Create(_ context.Context, l *coordinationv1.Lease,
	_ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	if err := s.check("create"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[l.Name] != nil {
		return nil, apierrors.NewAlreadyExists(leaseResource, l.Name)
	}
	return s.createLocked(l), nil
}

func (s *simServer) createLocked(l *coordinationv1.Lease) *coordinationv1.Lease {
	l = l.DeepCopy()
	s.uids++ // Also after a restore no UID is used twice.
	l.UID = types.UID("uid-" + strconv.Itoa(s.uids))
	return s.putLocked(watch.Added, l)
}

func (s *simServer) Update(_ context.Context, l *coordinationv1.Lease,
	_ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if err := s.check("update"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[l.Name] == nil && l.UID == "" {
		return s.createLocked(l), nil
	}
	if err := s.checkLocked(l.Name, &metav1.Preconditions{UID: &l.UID,
		ResourceVersion: &l.ResourceVersion}); err != nil {
		if apierrors.IsNotFound(err) {
			err = apierrors.NewConflict(leaseResource, l.Name, err)
		}
		return nil, err
	}
	before := s.leases[l.Name]
	l = l.DeepCopy()
	l.UID = before.UID
	return s.storeLocked(before, l), nil
}

func (s *simServer) Delete(_ context.Context, name string, o metav1.DeleteOptions) error {
	if err := s.check("delete"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkLocked(name, o.Preconditions); err != nil {
		return err
	}
	s.putLocked(watch.Deleted, s.leases[name].DeepCopy())
	delete(s.leases, name)
	return nil
}

// checkLocked compares those conditions that are not empty.
func (s *simServer) checkLocked(name string, want *metav1.Preconditions) error {
	l := s.leases[name]
	if l == nil {
		return apierrors.NewNotFound(leaseResource, name)
	}
	if want != nil && (*want.UID != "" && *want.UID != l.UID || *want.ResourceVersion != "" &&
		*want.ResourceVersion != l.ResourceVersion) {
		return apierrors.NewConflict(leaseResource, name, nil)
	}
	return nil
}

// putLocked stores l, reports the change, and returns a copy.
func (s *simServer) putLocked(change watch.EventType, l *coordinationv1.Lease) *coordinationv1.Lease {
	s.version++
	l.ResourceVersion = strconv.Itoa(s.version)
	s.leases[l.Name] = l
	if change == "" {
		change = watch.Bookmark
	}
	s.events = append(s.events[max(0, len(s.events)-100):], watch.Event{Type: change, Object: l})
	close(s.changed)
	s.changed = make(chan struct{})
	return l.DeepCopy()
}

func (s *simServer) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if err := s.check("watch"); err != nil {
		return nil, err
	}
	version, err := strconv.Atoi(o.ResourceVersion)
	if err != nil {
		return nil, err
	}
	results := make(chan watch.Event)
	w := watch.NewProxyWatcher(results)
	send := func(e watch.Event) bool {
		select {
		case results <- e:
			return true
		case <-w.StopChan():
		case <-ctx.Done():
		}
		return false
	}
	s.mu.Lock()
	restores := s.restores
	s.mu.Unlock()
	go func() {
		for {
			events, changed := s.since(version, restores)
			for _, e := range events {
				if !send(e) {
					return
				}
			}
			version += len(events)
			select {
			case <-changed:
			case <-w.StopChan():
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return w, nil
}

// since returns the changes after a version, or an error event if they are forgotten, and a channel that is
// closed when there are more.
func (s *simServer) since(version, restores int) ([]watch.Event, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.version - version
	if n < 0 || n > len(s.events) || restores != s.restores {
		expired := apierrors.NewResourceExpired("too old").Status()
		return []watch.Event{{Type: watch.Error, Object: &expired}}, nil
	}
	return s.events[len(s.events)-n:], s.changed
}
