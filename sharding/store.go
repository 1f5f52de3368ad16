package sharding

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"
)

// Store keeps the records of groups, each conditional on its version. [Leases] and [Memory] return one. All
// safety rests on three promises:
//
//   - Get and List return what is stored at some moment after the call began, and never an older state.
//   - Create, Update and Delete are atomic, and take effect only under their condition.
//   - Each change gives the record a version that no record of that name ever had before.
//
// They may be broken by a restore, which takes all records back to an earlier state and version. A call that
// returns any other error than those below may still take effect, at once or later. All methods are safe for
// concurrent use. They return soon after ctx is done.
type Store interface {
	// Get returns the record of that name, or ErrNotFound.
	Get(ctx context.Context, name string) (Record, error)
	// List returns the records of a group, and the version from which to watch them.
	List(ctx context.Context, group string) (records []Record, version string, err error)
	// Watch calls changed for each change of the group's records after version, in order, until ctx is done,
	// the watch ends or version is too old. It may be late and may leave out versions of a record that was
	// changed again. Its error is only for logs: the caller lists and watches again.
	Watch(ctx context.Context, group, version string, changed func(Event)) error
	// Create stores a new record and returns it with its version, or ErrExists.
	Create(ctx context.Context, r Record) (Record, error)
	// Update replaces the record if its version still is r.Version, and returns it with its new one.
	// Otherwise it returns ErrConflict, or ErrNotFound.
	Update(ctx context.Context, r Record) (Record, error)
	// Delete deletes the record if its version still is version. Otherwise it returns ErrConflict, or
	// ErrNotFound.
	Delete(ctx context.Context, name, version string) error
}

// The errors of a [Store] that say that a call had, and will have, no effect. They may be wrapped.
var (
	ErrNotFound = errors.New("sharding: no such record")
	ErrExists   = errors.New("sharding: the record exists")
	ErrConflict = errors.New("sharding: the record has another version")
	// ErrRefused: this client must not write that, or not in this form. A Store need not know it.
	ErrRefused = errors.New("sharding: the server refuses the request")
)

// Record is what a [Store] keeps: a member of a group, or the group's table.
type Record struct {
	Name, Group string
	// Version is given by the store.
	Version string
	// Of what a member writes, the protocol reads Name and Data.
	Data string

	// What follows is shown to people.
	Holder  string
	Lease   time.Duration
	Renewed time.Time
	// Slots is how many slots a member holds, or how many have a holder by the table.
	Slots int
}

// Event is a change of a record. If it was deleted, only Name and Group of Record are certain to be set.
type Event struct {
	Record  Record // after the change
	Deleted bool
}

const (
	// groupLabel is the label of a group's Leases, and dataAnnotation is where they have Record.Data.
	groupLabel      = "keyedqueue.github.io/sharding-group"
	dataAnnotation  = "keyedqueue.github.io/sharding"
	slotsAnnotation = "keyedqueue.github.io/slots" // has Record.Slots, for a column of kubectl
)

// Leases returns a store that keeps its records as Leases of a namespace, each labelled with its group. The
// client needs the verbs get, list, watch, create, update and delete for leases of coordination.k8s.io in
// that namespace, and nothing else. Its own limit of requests should leave room for two requests each third
// of a lease, and for a few more when members come and go.
func Leases(client coordination.LeasesGetter, namespace string) Store {
	return &leases{client.Leases(namespace)}
}

type leases struct{ client coordination.LeaseInterface }

// inGroup selects the Leases of a group, from that version on. A list ignores AllowWatchBookmarks.
func inGroup(group, version string) metav1.ListOptions {
	label := groupLabel + "=" + group
	return metav1.ListOptions{LabelSelector: label, ResourceVersion: version, AllowWatchBookmarks: true}
}

func (s *leases) Get(ctx context.Context, name string) (Record, error) {
	// Without a resource version the server answers with the newest state, not with what it has cached.
	return recordOf(s.client.Get(ctx, name, metav1.GetOptions{}))
}

func (s *leases) List(ctx context.Context, group string) ([]Record, string, error) {
	list, err := s.client.List(ctx, inGroup(group, ""))
	if err != nil {
		return nil, "", storeError(err)
	}
	var records []Record
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			records = append(records, toRecord(&list.Items[i]))
		}
	}
	return records, list.ResourceVersion, nil
}

func (s *leases) Watch(ctx context.Context, group, version string, changed func(Event)) error {
	w, err := s.client.Watch(ctx, inGroup(group, version))
	if err != nil {
		return err
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, ok := <-w.ResultChan():
			if !ok {
				return errors.New("sharding: the watch has ended")
			}
			if e.Type == watch.Error {
				return apierrors.FromObject(e.Object)
			}
			if lease, ok := e.Object.(*coordinationv1.Lease); ok && e.Type != watch.Bookmark {
				isDeleted := e.Type == watch.Deleted || lease.DeletionTimestamp != nil
				changed(Event{Record: toRecord(lease), Deleted: isDeleted})
			}
		}
	}
}

func (s *leases) Create(ctx context.Context, r Record) (Record, error) {
	created, err := s.client.Create(ctx, toLease(r), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		old, getErr := s.client.Get(ctx, r.Name, metav1.GetOptions{})
		if getErr == nil && old.DeletionTimestamp != nil {
			err = fmt.Errorf("sharding: the Lease %s is deleted, but kept by its finalizers %v: remove these",
				r.Name, old.Finalizers)
		}
	}
	return recordOf(created, err)
}

func (s *leases) Update(ctx context.Context, r Record) (Record, error) {
	return recordOf(s.client.Update(ctx, toLease(r), metav1.UpdateOptions{}))
}

func (s *leases) Delete(ctx context.Context, name, version string) error {
	uid, version := splitVersion(version)
	only := metav1.Preconditions{UID: &uid, ResourceVersion: &version}
	return storeError(s.client.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &only}))
}

// versionOf returns the Version of a record: the UID of its Lease, and the resource version. An update must
// name the UID. Without it the API server creates a Lease that was deleted meanwhile, whatever resource
// version it names: a dead member could renew its record. With it, the server answers "conflict".
func versionOf(lease *coordinationv1.Lease) string {
	return string(lease.UID) + "/" + lease.ResourceVersion
}

func splitVersion(version string) (types.UID, string) {
	uid, resourceVersion, _ := strings.Cut(version, "/")
	return types.UID(uid), resourceVersion
}

// recordOf returns a Lease as a record. One that is being deleted, and that a finalizer keeps, is not there:
// its owner must not go on with it, because those who deleted it believe that it is gone.
func recordOf(lease *coordinationv1.Lease, err error) (Record, error) {
	if err != nil {
		return Record{}, storeError(err)
	}
	if lease.DeletionTimestamp != nil {
		return Record{}, fmt.Errorf("%w: %s is being deleted", ErrNotFound, lease.Name)
	}
	return toRecord(lease), nil
}

// storeError adds a Store's error to the server's. After those the request has had no effect.
func storeError(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("%w: %w", ErrExists, err)
	case apierrors.IsConflict(err):
		return fmt.Errorf("%w: %w", ErrConflict, err)
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err),
		apierrors.IsRequestEntityTooLargeError(err):
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return err
}

func toRecord(lease *coordinationv1.Lease) Record {
	return Record{
		Name: lease.Name, Group: lease.Labels[groupLabel], Version: versionOf(lease),
		Data: lease.Annotations[dataAnnotation], Holder: ptr.Deref(lease.Spec.HolderIdentity, ""),
		Lease:   time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second,
		Renewed: ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time}
}

func toLease(r Record) *coordinationv1.Lease {
	uid, version := splitVersion(r.Version)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: r.Name, UID: uid, ResourceVersion: version,
		Labels:      map[string]string{groupLabel: r.Group},
		Annotations: map[string]string{dataAnnotation: r.Data, slotsAnnotation: strconv.Itoa(r.Slots)},
	}}
	if r.Holder != "" {
		lease.Spec.HolderIdentity = &r.Holder
	}
	if r.Lease > 0 {
		seconds := int32((r.Lease + time.Second - 1) / time.Second) // The API server wants at least one.
		lease.Spec.LeaseDurationSeconds = &seconds
	}
	if !r.Renewed.IsZero() {
		lease.Spec.RenewTime = &metav1.MicroTime{Time: r.Renewed}
	}
	return lease
}

// Memory returns a store in the memory of this process: for tests, and for programs that show how it works.
func Memory() Store { return &memory{records: make(map[string]Record), changed: make(chan struct{})} }

// memory keeps records, and the last changes of them. Versions count changes.
type memory struct {
	mu      sync.Mutex // guards what follows
	records map[string]Record
	version int
	history []Event       // the last changes, up to version
	changed chan struct{} // closed at the next change
}

const maxHistory = 1000 // how many changes a watch may lag behind

func (m *memory) Get(ctx context.Context, name string) (Record, error) {
	if err := ctx.Err(); err != nil {
		return Record{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.records[name]
	if !ok {
		return Record{}, ErrNotFound
	}
	return r, nil
}

func (m *memory) List(ctx context.Context, group string) (records []Record, version string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.records {
		if r.Group == group {
			records = append(records, r)
		}
	}
	return records, strconv.Itoa(m.version), nil
}

func (m *memory) Watch(ctx context.Context, group, version string, changed func(Event)) error {
	next, err := strconv.Atoi(version)
	if err != nil {
		return err
	}
	for {
		events, more, ok := m.since(next)
		if !ok {
			return fmt.Errorf("sharding: there is no version %d, or it is too old", next)
		}
		for _, e := range events {
			if e.Record.Group == group {
				changed(e)
			}
		}
		next += len(events)
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// since returns the changes after a version, unless they are forgotten. more is closed when there are more.
func (m *memory) since(version int) (events []Event, more <-chan struct{}, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.version - version
	if n < 0 || n > len(m.history) {
		return nil, nil, false
	}
	return slices.Clone(m.history[len(m.history)-n:]), m.changed, true
}

func (m *memory) Create(ctx context.Context, r Record) (Record, error) {
	return m.change(ctx, Event{Record: r}, true)
}

func (m *memory) Update(ctx context.Context, r Record) (Record, error) {
	return m.change(ctx, Event{Record: r}, false)
}

func (m *memory) Delete(ctx context.Context, name, version string) error {
	_, err := m.change(ctx, Event{Record: Record{Name: name, Version: version}, Deleted: true}, false)
	return err
}

// change creates a record, if there is none of its name, or changes or deletes the one that has its version.
func (m *memory) change(ctx context.Context, e Event, create bool) (Record, error) {
	if err := ctx.Err(); err != nil {
		return Record{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r, found := m.records[e.Record.Name]
	switch {
	case create && found:
		return Record{}, ErrExists
	case !create && !found:
		return Record{}, ErrNotFound
	case !create && r.Version != e.Record.Version:
		return Record{}, ErrConflict
	}
	m.version++
	if e.Deleted {
		e.Record = r
		delete(m.records, r.Name)
	} else {
		e.Record.Version = strconv.Itoa(m.version)
		m.records[e.Record.Name] = e.Record
	}
	m.history = append(m.history[max(0, len(m.history)-maxHistory):], e)
	close(m.changed)
	m.changed = make(chan struct{})
	return e.Record, nil
}
