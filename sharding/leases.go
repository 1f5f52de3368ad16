package sharding

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

const (
	// groupLabel is the label of a group's Leases, and dataAnnotation is where they have Record.Data.
	groupLabel     = "keyedqueue.github.io/sharding-group"
	dataAnnotation = "keyedqueue.github.io/sharding"
)

// Leases returns a store that keeps its records as Leases of a namespace, each labelled with its group. The client needs
// the verbs get, list, watch, create, update and delete for leases of coordination.k8s.io in that namespace, and nothing
// else. Its own limit of requests should leave room for two requests each third of a lease, and for a few more when
// members come and go:
//
//	member, err := sharding.Join(ctx, sharding.Leases(client.CoordinationV1(), "my-system"), config)
func Leases(client coordination.LeasesGetter, namespace string) Store {
	return &leases{client.Leases(namespace)}
}

type leases struct {
	client coordination.LeaseInterface
}

func (s *leases) Get(ctx context.Context, name string) (Record, error) {
	// Without a resource version the server answers with the newest state, not with what it has cached.
	lease, err := s.client.Get(ctx, name, metav1.GetOptions{})
	return recordOf(lease, err)
}

func (s *leases) List(ctx context.Context, group string) ([]Record, string, error) {
	list, err := s.client.List(ctx, metav1.ListOptions{LabelSelector: groupLabel + "=" + group})
	if err != nil {
		return nil, "", err
	}
	records := make([]Record, len(list.Items))
	for i := range list.Items {
		records[i] = toRecord(&list.Items[i])
	}
	return records, list.ResourceVersion, nil
}

func (s *leases) Watch(ctx context.Context, group, version string, changed func(Event)) error {
	w, err := s.client.Watch(ctx, metav1.ListOptions{
		LabelSelector: groupLabel + "=" + group, ResourceVersion: version, AllowWatchBookmarks: true,
	})
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
	lease, err := s.client.Create(ctx, toLease(r), metav1.CreateOptions{})
	return recordOf(lease, err)
}

func (s *leases) Update(ctx context.Context, r Record) (Record, error) {
	lease, err := s.client.Update(ctx, toLease(r), metav1.UpdateOptions{})
	return recordOf(lease, err)
}

func (s *leases) Delete(ctx context.Context, name, version string) error {
	uid, version := splitVersion(version)
	return storeError(s.client.Delete(ctx, name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
	}))
}

// versionOf returns the Version of a record: the UID of its Lease, and the resource version. The UID must be in each update,
// because the API server creates a Lease that is updated after it was deleted, whatever resource version the update
// names: a dead member could renew its record. With a UID the server answers "conflict".
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

// storeError adds a Store's error to the server's. A server that answers "already exists" or "conflict" has not done
// what it was asked to.
func storeError(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("%w: %w", ErrExists, err)
	case apierrors.IsConflict(err):
		return fmt.Errorf("%w: %w", ErrConflict, err)
	}
	return err
}

func toRecord(lease *coordinationv1.Lease) Record {
	r := Record{
		Name: lease.Name, Group: lease.Labels[groupLabel], Version: versionOf(lease), Data: lease.Annotations[dataAnnotation],
	}
	if lease.Spec.HolderIdentity != nil {
		r.Holder = *lease.Spec.HolderIdentity
	}
	if lease.Spec.LeaseDurationSeconds != nil {
		r.Lease = time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
	}
	if lease.Spec.RenewTime != nil {
		r.Renewed = lease.Spec.RenewTime.Time
	}
	return r
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
