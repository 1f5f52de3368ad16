package kubetest

import (
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// isKubernetes reports whether a kind is one of those of client-go.
func isKubernetes(kind schema.GroupVersionKind) bool { return scheme.Scheme.Recognizes(kind) }

// valid returns what an API server says of the metadata of an object. Old is nil for a new one.
func valid(kind schema.GroupVersionKind, old, now client.Object) error {
	name := validation.NameIsDNSSubdomain
	if kind.Group == "rbac.authorization.k8s.io" {
		name = path.ValidatePathSegmentName //lint:ignore SA1019 the lowest version that we require has no other
	}
	at := field.NewPath("metadata")
	errs := validation.ValidateObjectMetaAccessor(now, now.GetNamespace() != "", name, at)
	if old != nil {
		errs = append(errs, validation.ValidateObjectMetaAccessorUpdate(now, old, at)...)
	}
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(kind.GroupKind(), now.GetName(), errs)
}

// hasGeneration reports whether an API server counts the generations of a kind. Of Kubernetes' own kinds it
// does not of those in these groups, but for Pods and ReplicationControllers.
func hasGeneration(kind schema.GroupVersionKind) bool {
	without := []string{"", "autoscaling", "coordination.k8s.io", "events.k8s.io", "node.k8s.io",
		"rbac.authorization.k8s.io", "storage.k8s.io"}
	return kind.Kind == "Pod" || kind.Kind == "ReplicationController" || !isKubernetes(kind) ||
		!slices.Contains(without, kind.Group)
}

// hasStatus reports whether the objects of a kind have a status subresource.
func (c *Cluster) hasStatus(kind schema.GroupVersionKind) bool {
	typed, err := c.scheme.New(kind)
	if err != nil {
		return true
	}
	_, ok := reflect.TypeOf(typed).Elem().FieldByName("Status")
	return ok
}

// globalKinds are Kubernetes' own kinds whose objects are in no namespace.
var globalKinds = []string{"CSIDriver", "CSINode", "CertificateSigningRequest", "ClusterRole",
	"ClusterRoleBinding", "ClusterTrustBundle", "ComponentStatus", "DeviceClass", "DeviceTaintRule",
	"FlowSchema", "IPAddress", "IngressClass", "MutatingAdmissionPolicy",
	"MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration", "Namespace", "Node", "PersistentVolume",
	"PriorityClass", "PriorityLevelConfiguration", "ResourceSlice", "RuntimeClass", "SelfSubjectAccessReview",
	"SelfSubjectReview", "SelfSubjectRulesReview", "ServiceCIDR", "StorageClass", "StorageVersion",
	"StorageVersionMigration", "SubjectAccessReview", "TokenReview", "ValidatingAdmissionPolicy",
	"ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration", "VolumeAttachment",
	"VolumeAttributesClass"}

// isGlobal reports whether the objects of a kind are in no namespace. For other kinds than Kubernetes'
// the first object that was created decides.
func (c *Cluster) isGlobal(kind schema.GroupVersionKind) bool {
	if isKubernetes(kind) {
		return slices.Contains(globalKinds, kind.Kind)
	}
	return c.global[kind]
}

// kindMapper is a mapper for the kinds in the scheme, and those that have objects.
type kindMapper struct {
	meta.RESTMapper // nil: other methods panic
	cluster         *Cluster
}

func (m kindMapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	c := m.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.DeleteFunc(c.kinds(), func(k schema.GroupVersionKind) bool { return k.GroupKind() != kind })
	for _, gv := range c.scheme.VersionsForGroupKind(kind) {
		all = append(all, gv.WithKind(kind.Kind))
	}
	known := meta.NewDefaultRESTMapper(c.scheme.PrioritizedVersionsForGroup(kind.Group))
	for _, k := range all {
		scope := meta.RESTScopeNamespace
		if c.isGlobal(k) {
			scope = meta.RESTScopeRoot
		}
		known.Add(k, scope)
	}
	return known.RESTMapping(kind, versions...)
}
