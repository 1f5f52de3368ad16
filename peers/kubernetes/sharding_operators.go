package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keyedqueue/workqueue/sharding"
)

// What operators do while replicas work: they restore a backup of etcd, and forbid writes. No key must be
// with two replicas at once, and every key must be handled in the end.

func (h *history) people() []shardingStep {
	return []shardingStep{{"etcd restored", h.restore}, {"writes refused", h.refuseWrites}}
}

// change moves slots: two replicas come, and one goes.
func (h *history) change(ctx context.Context) error {
	err := errors.Join(h.start(), h.start())
	if err == nil {
		err = h.settle(ctx)
	}
	if err == nil {
		err = h.leave()
	}
	if err != nil {
		return err
	}
	return h.settle(ctx)
}

// restore stops etcd to copy its data, lets slots move, and starts it with that copy. Versions repeat. All
// replicas must end within a lease, and are started anew, as a Deployment does.
func (h *history) restore(ctx context.Context) error {
	data, backup := filepath.Join(h.dir, "etcd"), filepath.Join(h.dir, "backup")
	h.etcd.stop()
	err := errors.Join(os.RemoveAll(backup), os.CopyFS(backup, os.DirFS(data)), h.startEtcd(ctx))
	if err == nil {
		err = h.settle(ctx)
	}
	if err == nil {
		err = h.change(ctx)
	}
	if err != nil {
		return err
	}
	h.writing.Lock() // What is written now is lost.
	defer h.writing.Unlock()
	before, err := h.client.CoreV1().ConfigMaps(h.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	h.server.kill()
	h.etcd.kill()
	if err := errors.Join(os.RemoveAll(data), os.Rename(backup, data), h.startEtcd(ctx)); err != nil {
		return err
	}
	if err := h.startServer(ctx, h.variant); err != nil {
		return err
	}
	back := time.Now()
	if err := h.raiseVersion(ctx, before.ResourceVersion); err != nil {
		return err
	}
	for _, c := range slices.Clone(h.running) {
		select { // Their drains and the API server's start take some time beside the lease.
		case <-c.ended:
		case <-time.After(h.lease + 20*time.Second - time.Since(back)):
			return fmt.Errorf("%s has not ended after etcd was restored", c.name)
		}
		if !strings.Contains(string(c.tail()), sharding.ErrRestored.Error()) {
			return fmt.Errorf("%s has ended for another reason:\n%s", c.name, c.tail())
		}
		h.end(c, func() {})
		if err := h.start(); err != nil {
			return err
		}
	}
	objects, err := h.client.CoreV1().ConfigMaps(h.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	// An informer continues to watch where it was, and does not hear that an object is older again, so each is
	// written once more. (After "etcdutl snapshot restore --mark-compacted" it would list all objects.)
	patch := []byte(`{"metadata":{"annotations":{"restored":"` + before.ResourceVersion + `"}}}`)
	for _, o := range objects.Items {
		if strings.HasPrefix(o.Name, "object-") {
			h.setVersion(o.Name, o.Data["version"])
			if _, err := h.client.CoreV1().ConfigMaps(h.namespace).Patch(ctx, o.Name, types.MergePatchType, patch,
				metav1.PatchOptions{}); err != nil {
				return err
			}
		}
	}
	return nil
}

// raiseVersion writes until the server's version is past its earlier one. Meanwhile informers see no
// change, because they watch from a version that is yet to come; that is so in every controller.
func (h *history) raiseVersion(ctx context.Context, version string) error {
	past, err := strconv.Atoi(version)
	if err != nil {
		return err
	}
	maps := h.client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	for {
		m, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "raise-"}},
			metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if now, err := strconv.Atoi(m.ResourceVersion); err != nil || now > past {
			return err
		}
	}
}

// refuseWrites lets the API server refuse all updates of Leases in the namespace for twice the lease.
func (h *history) refuseWrites(ctx context.Context) error {
	name := "refuse-" + h.namespace
	policies, bindings := h.client.AdmissionregistrationV1().ValidatingAdmissionPolicies(),
		h.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	fails := admissionv1.Fail
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fails,
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": h.namespace}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule: admissionv1.Rule{APIGroups: []string{"coordination.k8s.io"}, APIVersions: []string{"v1"},
						Resources: []string{"leases"}},
				}}},
			},
			Validations: []admissionv1.Validation{{Expression: "false", Message: "writes are refused"}},
		}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		}}
	_, err := policies.Create(ctx, policy, metav1.CreateOptions{})
	if err == nil {
		_, err = bindings.Create(ctx, binding, metav1.CreateOptions{})
	}
	if err == nil {
		err = h.awaitRefusal(ctx)
	}
	if err == nil {
		err = pause(ctx, 2*h.lease)
	}
	return errors.Join(err, bindings.Delete(ctx, name, metav1.DeleteOptions{}),
		policies.Delete(ctx, name, metav1.DeleteOptions{}))
}

// awaitRefusal waits until the policy works, which takes some time.
func (h *history) awaitRefusal(ctx context.Context) error {
	leases := h.client.CoordinationV1().Leases(h.namespace)
	if _, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "probe"}},
		metav1.CreateOptions{}); err != nil {
		return err
	}
	for {
		l, err := leases.Get(ctx, "probe", metav1.GetOptions{})
		if err == nil {
			_, err = leases.Update(ctx, l, metav1.UpdateOptions{})
		}
		if err != nil && strings.Contains(err.Error(), "writes are refused") {
			return leases.Delete(ctx, "probe", metav1.DeleteOptions{})
		}
		if err := pause(ctx, h.lease/20); err != nil {
			return fmt.Errorf("the policy does not work: %w", err)
		}
	}
}
