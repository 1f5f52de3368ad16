package sharding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// right is a verb that the client needs, and a call that shows whether it may, and changes nothing.
type right struct {
	verb string
	try  func(context.Context) error
}

// checkRights returns an error that names the verbs that the client lacks, which otherwise show much later:
// delete when another member dies, and watch never, but with six times the requests. Other errors count for
// get alone: members get along without a working watch.
func (m *Member) checkRights() error {
	store, ok := m.store.(interface {
		rights(group, name string) []right
	})
	if !ok {
		return nil
	}
	var missing []string
	var first error
	for _, r := range store.rights(m.config.Group, m.recordName(m.ID())) {
		err := m.call(m.ctx, r.try)
		switch {
		case isDenied(err):
			missing, first = append(missing, r.verb), cmp.Or(first, err)
		case r.verb == "get" && err != nil && !errors.Is(err, ErrNotFound):
			return err
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("the client lacks the verbs %s for leases, "+
		"and needs get, list, watch, create, update and delete: %w", strings.Join(missing, ", "), first)
}

// isDenied reports whether the server does not let this client do that, or does not know who it is.
func isDenied(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// rights returns all rights but that to create, which nothing shows but creating. No Lease has that name.
func (s *leases) rights(group, name string) []right {
	none := Record{Name: name, Group: group, Version: "none/1"}
	return []right{
		{"get", func(ctx context.Context) error { _, err := s.Get(ctx, name); return err }},
		{"list", func(ctx context.Context) error { _, _, err := s.List(ctx, group); return err }},
		{"watch", func(ctx context.Context) error {
			w, err := s.client.Watch(ctx, inGroup(group, "0"))
			if err == nil {
				w.Stop()
			}
			return err
		}},
		{"update", func(ctx context.Context) error { _, err := s.Update(ctx, none); return err }},
		{"delete", func(ctx context.Context) error { return s.Delete(ctx, name, none.Version) }},
	}
}
