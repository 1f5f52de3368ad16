package reconcilers

import (
	"context"
	"fmt"
	"testing"
	"time"

	xpv1 "github.com/crossplane/crossplane-runtime/apis/common/v1"
	"github.com/crossplane/crossplane-runtime/pkg/meta"
	"github.com/crossplane/crossplane-runtime/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/pkg/resource"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyedqueue/workqueue/handlertest"
	"github.com/keyedqueue/workqueue/handlertest/kubetest"
)

// bucket is a managed resource, without what [managed.Reconciler] does not need here.
type bucket struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Status            xpv1.ResourceStatus `json:"status"`
}

func (*bucket) GetProviderConfigReference() *xpv1.Reference                     { return nil }
func (*bucket) SetProviderConfigReference(*xpv1.Reference)                      {}
func (*bucket) GetWriteConnectionSecretToReference() *xpv1.SecretReference      { return nil }
func (*bucket) SetWriteConnectionSecretToReference(*xpv1.SecretReference)       {}
func (*bucket) GetPublishConnectionDetailsTo() *xpv1.PublishConnectionDetailsTo { return nil }
func (*bucket) SetPublishConnectionDetailsTo(*xpv1.PublishConnectionDetailsTo)  {}
func (*bucket) GetManagementPolicies() xpv1.ManagementPolicies                  { return nil }
func (*bucket) SetManagementPolicies(xpv1.ManagementPolicies)                   {}
func (*bucket) GetDeletionPolicy() xpv1.DeletionPolicy                          { return "" }
func (*bucket) SetDeletionPolicy(xpv1.DeletionPolicy)                           {}

func (b *bucket) GetCondition(t xpv1.ConditionType) xpv1.Condition { return b.Status.GetCondition(t) }
func (b *bucket) SetConditions(c ...xpv1.Condition)                { b.Status.SetConditions(c...) }

func (b *bucket) DeepCopyObject() runtime.Object {
	c := &bucket{TypeMeta: b.TypeMeta, ObjectMeta: *b.ObjectMeta.DeepCopy()}
	b.Status.DeepCopyInto(&c.Status)
	return c
}

type bucketList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []bucket `json:"items"`
}

func (l *bucketList) DeepCopyObject() runtime.Object {
	c := &bucketList{TypeMeta: l.TypeMeta, ListMeta: l.ListMeta}
	for _, b := range l.Items {
		c.Items = append(c.Items, *b.DeepCopyObject().(*bucket))
	}
	return c
}

// cloud is an external system that chooses the names of what it creates.
type cloud struct {
	process *handlertest.Process
	names   map[string]bool
	created *int
}

func (c cloud) Observe(ctx context.Context, mg resource.Managed) (o managed.ExternalObservation, err error) {
	err = c.process.Read(ctx, func() error {
		o.ResourceExists = c.names[meta.GetExternalName(mg)]
		return nil
	})
	if o.ResourceUpToDate = o.ResourceExists; o.ResourceExists {
		mg.SetConditions(xpv1.Available())
	}
	return o, err
}

func (c cloud) Create(ctx context.Context, mg resource.Managed) (_ managed.ExternalCreation, err error) {
	return managed.ExternalCreation{}, c.process.Write(ctx, "creates a bucket in the cloud", func() error {
		*c.created++
		name := fmt.Sprint("bucket-", *c.created)
		c.names[name] = true
		meta.SetExternalName(mg, name)
		return nil
	})
}

func (c cloud) Update(context.Context, resource.Managed) (u managed.ExternalUpdate, err error) {
	return u, nil
}

func (c cloud) Delete(ctx context.Context, mg resource.Managed) (d managed.ExternalDelete, err error) {
	return d, c.process.Write(ctx, "deletes a bucket in the cloud", func() error {
		delete(c.names, meta.GetExternalName(mg))
		return nil
	})
}

func connector(c cloud) managed.ExternalConnecter {
	return managed.ExternalConnectorFn(func(context.Context, resource.Managed) (managed.ExternalClient, error) {
		return c, nil
	})
}

func (cloud) Disconnect(context.Context) error { return nil }

// buckets is a scenario of a bucket in the cloud that somebody writes a label to: at any moment, or when it
// has long been there. Then somebody also deletes it.
func buckets(anyMoment bool) func(s *kubetest.Scenario) {
	group := schema.GroupVersion{Group: "example.org", Version: "v1"}
	kinds := schemeWith(func(s *runtime.Scheme) error {
		s.AddKnownTypeWithName(group.WithKind("Bucket"), &bucket{})
		s.AddKnownTypeWithName(group.WithKind("BucketList"), &bucketList{})
		return nil
	})
	return func(s *kubetest.Scenario) {
		cluster := kubetest.NewCluster(s, kinds)
		b := &bucket{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		cluster.Create(b)
		label := func() {
			kubetest.Change(cluster, b, func(b *bucket) { b.Labels = map[string]string{"team": "x"} })
		}
		if anyMoment {
			s.Sometime("labels the bucket", label)
		} else {
			s.At(5*time.Minute, label)
			s.At(6*time.Minute, func() { cluster.Delete(b) })
		}
		s.Settle = 20 * time.Minute // What it has just created may not be seen yet: it waits longer and longer.
		names, created := make(map[string]bool), 0
		s.Measure = func() any {
			var now bucket
			err := cluster.Others().Get(context.Background(), client.ObjectKeyFromObject(b), &now)
			must(client.IgnoreNotFound(err))
			return fmt.Sprintf("buckets in the cloud = %d\nready = %v\nsynced = %v\nnamed = %v", len(names),
				now.GetCondition(xpv1.TypeReady).Status == corev1.ConditionTrue,
				now.GetCondition(xpv1.TypeSynced).Reason, names[meta.GetExternalName(&now)])
		}
		cluster.Start(func(m *kubetest.Manager) error {
			c := cloud{m.Process, names, &created}
			kind := resource.ManagedKind(group.WithKind("Bucket"))
			return builder.ControllerManagedBy(m).For(&bucket{}).Complete(managed.NewReconciler(m, kind,
				managed.WithExternalConnecter(connector(c)), managed.WithInitializers()))
		})
	}
}

// Without what its findings are about, it is right.
func TestManagedReconciler(t *testing.T) {
	kubetest.Converges(t, func(s *kubetest.Scenario) {
		buckets(false)(s)
		s.Without(handlertest.Crash, handlertest.LostAnswer, handlertest.Conflict)
	})
}

func TestManagedReconcilerFindings(t *testing.T) {
	// Somebody writes to the bucket while it is created in the cloud, and the cache shows it 100 ms later. Five
	// tries to keep the name within 50 ms read the cache, and conflict. Then the name is lost.
	wantReport(t, buckets(true), "lag:Bucket#3=100ms sometime:labels+the+bucket#1=5ms",
		"extra:   named = false")
	// A write takes effect, and its answer is lost: nothing was created, and nothing ever will be.
	wantReport(t, buckets(false), "lost:%2Fa#2=3ms",
		"gets no answer", "extra:   synced = ReconcileError")
}
