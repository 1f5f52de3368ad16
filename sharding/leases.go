package sharding

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"
)

const (
	// groupLabel is the label of a group's Leases, and dataAnnotation is where they have Record.Data.
	groupLabel      = "keyedqueue.github.io/sharding-group"
	dataAnnotation  = "keyedqueue.github.io/sharding"
	slotsAnnotation = "keyedqueue.github.io/slots" // has Record.Held, for a column of kubectl
)

// Leases returns a store that keeps its records as Leases of a namespace, each labelled with its group. The
// client needs the verbs get, list, watch, create, update and delete for leases of coordination.k8s.io in
// that namespace, and nothing else. Its own limit of requests should leave room for two requests each third
// of a lease, and for a few more when members come and go.
func Leases(client coordination.LeasesGetter, namespace string) Store {
	return &leases{client.Leases(namespace)}
}

type leases struct{ client coordination.LeaseInterface }

// longestWatch is when the server ends a watch; the client does so a little later. client-go's HTTP/2 pings
// notice a dead connection within a minute, but a proxy may hide it.
const longestWatch = 5 * time.Minute

// inGroup selects the Leases of a group, from that version on.
func inGroup(group, version string) metav1.ListOptions {
	label, timeout := groupLabel+"="+group, int64(longestWatch/time.Second)
	return metav1.ListOptions{LabelSelector: label, ResourceVersion: version, TimeoutSeconds: &timeout}
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
		records = append(records, toRecord(&list.Items[i]))
	}
	return records, list.ResourceVersion, nil
}

func (s *leases) Watch(ctx context.Context, group, version string, changed func(Event)) error {
	ctx, cancel := context.WithTimeout(ctx, longestWatch+30*time.Second)
	defer cancel()
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
				changed(Event{Record: toRecord(lease), Deleted: e.Type == watch.Deleted})
			}
		}
	}
}

func (s *leases) Create(ctx context.Context, r Record) (Record, error) {
	ctx, requests := countRequests(ctx)
	lease, err := s.client.Create(ctx, toLease(r), metav1.CreateOptions{})
	return written(lease, err, requests)
}

func (s *leases) Update(ctx context.Context, r Record) (Record, error) {
	ctx, requests := countRequests(ctx)
	lease, err := s.client.Update(ctx, toLease(r), metav1.UpdateOptions{})
	return written(lease, err, requests)
}

// countRequests returns a context that counts the requests of a call. client-go repeats a request if the
// answer says when, for example because etcd did not answer the API server in time.
func countRequests(ctx context.Context) (context.Context, *atomic.Int32) {
	requests := new(atomic.Int32)
	trace := &httptrace.ClientTrace{WroteHeaders: func() { requests.Add(1) }}
	return httptrace.WithClientTrace(ctx, trace), requests
}

// written is recordOf for a write. A refusal of a repeated request says nothing of the first one, which may
// have taken effect. So it is no ErrRefused.
func written(lease *coordinationv1.Lease, err error, requests *atomic.Int32) (Record, error) {
	r, stored := recordOf(lease, err)
	if errors.Is(stored, ErrRefused) && requests.Load() > 1 {
		return r, fmt.Errorf("repeated, and then refused: %w", err)
	}
	return r, stored
}

func (s *leases) Delete(ctx context.Context, name, version string) error {
	uid, version := splitVersion(version)
	only := metav1.Preconditions{UID: &uid, ResourceVersion: &version}
	return storeError(s.client.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &only}))
}

// versionOf returns the Version of a record: the UID of its Lease, and the resource version. An update must
// name the UID. Without it the API server creates a Lease that was deleted meanwhile, and ignores the
// resource version: a dead member could renew its record. With it, the server answers "conflict".
func versionOf(lease *coordinationv1.Lease) string {
	return string(lease.UID) + "/" + lease.ResourceVersion
}

func splitVersion(version string) (types.UID, string) {
	uid, resourceVersion, _ := strings.Cut(version, "/")
	return types.UID(uid), resourceVersion
}

func recordOf(lease *coordinationv1.Lease, err error) (Record, error) {
	if err != nil {
		return Record{}, storeError(err)
	}
	return toRecord(lease), nil
}

// storeError adds a Store's error to the server's.
func storeError(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("%w: %w", ErrExists, err)
	case apierrors.IsConflict(err):
		return fmt.Errorf("%w: %w", ErrConflict, err)
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsInvalid(err),
		apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return err
}

func toRecord(lease *coordinationv1.Lease) Record {
	return Record{
		Name: lease.Name, Group: lease.Labels[groupLabel], UID: string(lease.UID), Version: versionOf(lease),
		Data: lease.Annotations[dataAnnotation], Holder: ptr.Deref(lease.Spec.HolderIdentity, ""),
		Lease:   time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second,
		Renewed: ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time}
}

func toLease(r Record) *coordinationv1.Lease {
	uid, version := splitVersion(r.Version)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: r.Name, UID: uid, ResourceVersion: version,
		Labels:      map[string]string{groupLabel: r.Group},
		Annotations: map[string]string{dataAnnotation: r.Data},
	}}
	if r.Holder != "" {
		lease.Spec.HolderIdentity = &r.Holder
		lease.Annotations[slotsAnnotation] = strconv.Itoa(r.Held)
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
