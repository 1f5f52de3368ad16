package controllerruntime

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyedqueue/workqueue/controllerruntime/ownwrites"
)

// ReadYourWrites returns c as a client that notes what a reconciler writes with it: objects of the
// given kinds, which the reconciler reads from the manager's cache. Its request is not reconciled again
// before the cache shows these writes, a later version, or that the object is gone, and limit at most.
// Meanwhile no worker waits, the request's adds are merged, and nothing counts as a failure. The reconciler
// must be wrapped by [WrapReconciler], and pass on its context.
//
//	c, err := controllerruntime.ReadYourWrites(ctx, mgr.GetClient(), mgr.GetCache(), 10*time.Second,
//		&corev1.ConfigMap{})
//
// A kind must be given as the reconciler reads it: as a typed object, unstructured or PartialObjectMetadata.
// ReadYourWrites gets the informers of all kinds from informers, as GetInformer does: call it before the
// manager starts, as SetupWithManager is. Kinds that only are written, such as Events, need not be watched.
//
// It notes Create, Update, Patch and Delete, and Update and Patch of Status. It does not note Apply,
// DeleteAllOf, other subresources, Status by SubResource("status"), or a dry run. After the hold the
// request is queued again only if an event, or the reconciler's own result, asked for it.
//
// It returns an error if limit is not positive, no kind is given, a kind is not in the client's scheme, or
// the cache fails.
func ReadYourWrites(ctx context.Context, c client.Client, informers cache.Cache, limit time.Duration,
	kinds ...client.Object) (client.Client, error) {
	if c == nil || informers == nil {
		return nil, errors.New("controllerruntime: ReadYourWrites needs a client and a cache")
	}
	if len(kinds) == 0 {
		return nil, errors.New("controllerruntime: ReadYourWrites without kinds: give those that the reconciler " +
			"writes and reads from the cache")
	}
	caches := make(map[schema.GroupVersionKind][]*ownwrites.Cache)
	for _, kind := range kinds {
		gvk, err := c.GroupVersionKindFor(kind)
		if err != nil {
			return nil, fmt.Errorf("controllerruntime: ReadYourWrites of %T: %w", kind, err)
		}
		informer, err := informers.GetInformer(ctx, kind)
		if err != nil {
			return nil, fmt.Errorf("controllerruntime: ReadYourWrites of %s: %w", gvk.Kind, err)
		}
		own, err := ownwrites.WatchReader(gvk.Kind, informer, limit,
			func(ctx context.Context, name types.NamespacedName) (metav1.Object, error) {
				object := kind.DeepCopyObject().(client.Object)
				err := informers.Get(ctx, name, object)
				if apierrors.IsNotFound(err) {
					return nil, nil
				}
				return object, err
			})
		if err != nil {
			return nil, fmt.Errorf("controllerruntime: ReadYourWrites of %s: %w", gvk.Kind, err)
		}
		caches[gvk] = append(caches[gvk], own)
	}
	return &notingClient{c, caches}, nil
}

// notingClient is what ReadYourWrites returns.
type notingClient struct {
	client.Client
	// caches has several for a kind that is read in several forms, such as its metadata alone.
	caches map[schema.GroupVersionKind][]*ownwrites.Cache
}

// note notes a write of object that has returned err, and returns err.
func (c *notingClient) note(ctx context.Context, object client.Object, dryRun []string, deleted bool,
	err error) error {
	if err != nil || len(dryRun) > 0 {
		return err
	}
	gvk, kindErr := c.GroupVersionKindFor(object)
	if kindErr != nil {
		return nil
	}
	for _, own := range c.caches[gvk] {
		if deleted {
			own.Deleted(ctx, object)
		} else {
			own.Wrote(ctx, object)
		}
	}
	return nil
}

func (c *notingClient) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	dryRun := new(client.CreateOptions).ApplyOptions(opts).DryRun
	return c.note(ctx, object, dryRun, false, c.Client.Create(ctx, object, opts...))
}

func (c *notingClient) Update(ctx context.Context, object client.Object, opts ...client.UpdateOption) error {
	dryRun := new(client.UpdateOptions).ApplyOptions(opts).DryRun
	return c.note(ctx, object, dryRun, false, c.Client.Update(ctx, object, opts...))
}

func (c *notingClient) Patch(ctx context.Context, object client.Object, patch client.Patch,
	opts ...client.PatchOption) error {
	dryRun := new(client.PatchOptions).ApplyOptions(opts).DryRun
	return c.note(ctx, object, dryRun, false, c.Client.Patch(ctx, object, patch, opts...))
}

func (c *notingClient) Delete(ctx context.Context, object client.Object, opts ...client.DeleteOption) error {
	dryRun := new(client.DeleteOptions).ApplyOptions(opts).DryRun
	return c.note(ctx, object, dryRun, true, c.Client.Delete(ctx, object, opts...))
}

func (c *notingClient) Status() client.SubResourceWriter {
	return &notingStatus{c.Client.Status(), c}
}

// notingStatus is the writer of the status of a notingClient.
type notingStatus struct {
	client.SubResourceWriter
	client *notingClient
}

func (s *notingStatus) Update(ctx context.Context, object client.Object,
	opts ...client.SubResourceUpdateOption) error {
	o := new(client.SubResourceUpdateOptions).ApplyOptions(opts)
	err := s.SubResourceWriter.Update(ctx, object, opts...)
	if o.SubResourceBody != nil { // The answer is in there.
		object = o.SubResourceBody
	}
	return s.client.note(ctx, object, o.DryRun, false, err)
}

func (s *notingStatus) Patch(ctx context.Context, object client.Object, patch client.Patch,
	opts ...client.SubResourcePatchOption) error {
	o := new(client.SubResourcePatchOptions).ApplyOptions(opts)
	err := s.SubResourceWriter.Patch(ctx, object, patch, opts...)
	if o.SubResourceBody != nil {
		object = o.SubResourceBody
	}
	return s.client.note(ctx, object, o.DryRun, false, err)
}
