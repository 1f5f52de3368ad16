package controllerruntime

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgo "k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/keyedqueue/workqueue"
)

// Event is what an event handler of controller-runtime has heard of.
type Event[object any] struct {
	// Type is "Create", "Update", "Delete" or "Generic".
	Type string
	// Old is the object before an Update, and otherwise the zero value. New is the object, for a Delete its
	// last state.
	Old, New object
	// Initial reports that the object was there when the controller started. It is of a Create alone.
	Initial bool
}

// WithCauses returns h as an event handler whose adds say why: decide is called for each event, and
// its cause is given to all requests that h adds before it returns. A nil decide is [CauseOf]. The priorities
// are those of h.
//
//	Watches(&corev1.ConfigMap{}, controllerruntime.WithCauses(&handler.EnqueueRequestForObject{}, nil))
//
// It must be the outermost handler. With a queue that is no [Queue], or is wrapped by another handler (also
// by controller-runtime's handler.Funcs), the adds have no causes.
//
// An add with a Quiet cause does not end the contexts of UntilAdded. All others do, also those of handlers
// without WithCauses, as builder's For and Owns have them.
func WithCauses[object any, request comparable](h handler.TypedEventHandler[object, request],
	decide func(Event[object]) workqueue.Cause) handler.TypedEventHandler[object, request] {
	if decide == nil {
		decide = CauseOf[object]
	}
	return &causingHandler[object, request]{h, decide}
}

type causingHandler[object any, request comparable] struct {
	handler handler.TypedEventHandler[object, request]
	decide  func(Event[object]) workqueue.Cause
}

func (h *causingHandler[object, request]) Create(ctx context.Context, e event.TypedCreateEvent[object],
	q clientgo.TypedRateLimitingInterface[request]) {
	h.handler.Create(ctx, e, h.because(q,
		Event[object]{Type: "Create", New: e.Object, Initial: e.IsInInitialList}))
}

func (h *causingHandler[object, request]) Update(ctx context.Context, e event.TypedUpdateEvent[object],
	q clientgo.TypedRateLimitingInterface[request]) {
	h.handler.Update(ctx, e, h.because(q, Event[object]{Type: "Update", Old: e.ObjectOld, New: e.ObjectNew}))
}

func (h *causingHandler[object, request]) Delete(ctx context.Context, e event.TypedDeleteEvent[object],
	q clientgo.TypedRateLimitingInterface[request]) {
	h.handler.Delete(ctx, e, h.because(q, Event[object]{Type: "Delete", New: e.Object}))
}

func (h *causingHandler[object, request]) Generic(ctx context.Context, e event.TypedGenericEvent[object],
	q clientgo.TypedRateLimitingInterface[request]) {
	h.handler.Generic(ctx, e, h.because(q, Event[object]{Type: "Generic", New: e.Object}))
}

// because returns q, whose adds have the cause of e.
func (h *causingHandler[object, request]) because(q clientgo.TypedRateLimitingInterface[request],
	e Event[object]) clientgo.TypedRateLimitingInterface[request] {
	ours, ok := q.(*Queue[request])
	if !ok || ours.cause != nil { // The outermost handler decides.
		return q
	}
	cause := h.decide(e)
	because := *ours
	because.cause = &cause
	return &because
}

// CauseOf returns the cause that [WithCauses] uses by default, such as "Update Deployment default/web,
// generation 3". It is Quiet for an update that does not change what people ask for: the generation, the
// labels, the annotations and the owners are unchanged, and so is whether the object is being deleted.
// Such an update is one of the status, often the controller's own, or of a finalizer, or a resync. For an
// object that has no generation, as a ConfigMap, only a resync is Quiet.
//
// Of something that is no client.Object it says the type of the event alone.
func CauseOf[object any](e Event[object]) workqueue.Cause {
	o, ok := asObject(e.New)
	if !ok {
		return workqueue.Cause{Reason: e.Type}
	}
	name := strings.TrimPrefix(client.ObjectKeyFromObject(o).String(), "/") // There may be no namespace.
	cause := workqueue.Cause{Reason: fmt.Sprintf("%s %s %s", e.Type, kindOf(o), name)}
	old, ok := asObject(e.Old)
	if e.Type != "Update" || !ok {
		return cause
	}
	switch generation := o.GetGeneration(); {
	case old.GetResourceVersion() == o.GetResourceVersion():
		cause.Reason += ", resync"
		cause.Quiet = true
	case old.GetDeletionTimestamp().IsZero() != o.GetDeletionTimestamp().IsZero():
		cause.Reason += ", being deleted"
	case generation != old.GetGeneration():
		cause.Reason += fmt.Sprintf(", generation %d", generation)
	case !maps.Equal(old.GetLabels(), o.GetLabels()), !maps.Equal(old.GetAnnotations(), o.GetAnnotations()):
		cause.Reason += ", metadata"
	case !slices.EqualFunc(old.GetOwnerReferences(), o.GetOwnerReferences(), isSameOwner):
		cause.Reason += ", owners"
	case generation != 0 && !slices.Equal(old.GetFinalizers(), o.GetFinalizers()):
		cause.Reason += ", finalizers"
		cause.Quiet = true
	case generation != 0:
		cause.Reason += ", status"
		cause.Quiet = true
	}
	return cause
}

// isSameOwner compares the owners' pointers by what they point to.
func isSameOwner(a, b metav1.OwnerReference) bool { return reflect.DeepEqual(a, b) }

// asObject returns v as an Object, and false if it has another type or is nil.
func asObject(v any) (client.Object, bool) {
	o, ok := v.(client.Object)
	if !ok || reflect.ValueOf(o).Kind() == reflect.Pointer && reflect.ValueOf(o).IsNil() {
		return nil, false
	}
	return o, true
}

// kindOf returns the object's kind. Typed objects often do not have it, but their Go types are called like
// it.
func kindOf(o client.Object) string {
	if kind := o.GetObjectKind().GroupVersionKind().Kind; kind != "" {
		return kind
	}
	return reflect.Indirect(reflect.ValueOf(o)).Type().Name()
}
