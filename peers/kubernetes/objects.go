package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
)

// An inventory counts a cluster's objects by their descriptions, which leave out what differs from run to
// run. It also counts the states that objects are in.
type inventory map[string]int

// unlisted are kinds whose objects differ from run to run: events are merged and expire, the names of leases
// come from the machine, and a ComponentStatus is the answer of a health check.
var unlisted = []string{"Event", "Lease", "ComponentStatus"}

// takeInventory lists all objects of all kinds, and the states of Deployments, Jobs and Pods.
func takeInventory(ctx context.Context, c *cluster) (inventory, error) {
	lists, err := discovery.ServerPreferredResources(c.client.Discovery())
	if err != nil {
		return nil, err
	}
	client, err := metadata.NewForConfig(c.config)
	if err != nil {
		return nil, err
	}
	found := inventory{}
	for _, list := range lists {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") || slices.Contains(unlisted, resource.Kind) {
				continue
			}
			objects, err := client.Resource(group.WithResource(resource.Name)).List(ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", resource.Name, err)
			}
			for _, object := range objects.Items {
				found[objectLine(resource.Kind, &object.ObjectMeta)]++
			}
		}
	}
	return found, found.addStates(ctx, c)
}

// objectLine describes an object. A name that the server has generated is cut to what it was generated from.
func objectLine(kind string, m *metav1.ObjectMeta) string {
	var line strings.Builder
	line.WriteString(kind + " ")
	if m.Namespace != "" {
		line.WriteString(m.Namespace + "/")
	}
	name := m.Name
	if m.GenerateName != "" && strings.HasPrefix(name, m.GenerateName) {
		name = m.GenerateName + "*"
	}
	if i := strings.LastIndex(name, ":"); kind == "ClusterTrustBundle" && i >= 0 {
		name = name[:i] + ":*" // The end is the hash of a certificate, and each cluster has its own.
	}
	line.WriteString(name)
	for _, owner := range m.OwnerReferences {
		fmt.Fprintf(&line, ", of %s %s", owner.Kind, owner.Name)
	}
	if len(m.Finalizers) > 0 {
		fmt.Fprintf(&line, ", finalizers %s", strings.Join(slices.Sorted(slices.Values(m.Finalizers)), " "))
	}
	if m.DeletionTimestamp != nil {
		line.WriteString(", being deleted")
	}
	return line.String()
}

// addStates adds a line for each state that Deployments, Jobs and Pods are in.
func (i inventory) addStates(ctx context.Context, c *cluster) error {
	deployments, err := c.client.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, d := range deployments.Items {
		i[fmt.Sprintf("state of Deployments: replicas %d, updated %d, ready %d, available %d", d.Status.Replicas,
			d.Status.UpdatedReplicas, d.Status.ReadyReplicas, d.Status.AvailableReplicas)]++
	}
	jobs, err := c.client.BatchV1().Jobs("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, j := range jobs.Items {
		i[fmt.Sprintf("state of Jobs: complete %t, active %d, succeeded %d, failed %d, uncounted %t", complete(&j),
			j.Status.Active, j.Status.Succeeded, j.Status.Failed, uncounted(&j))]++
	}
	pods, err := c.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, p := range pods.Items {
		i[fmt.Sprintf("state of Pods: %s", p.Status.Phase)]++
	}
	return nil
}

func complete(j *batchv1.Job) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue
	})
}

// uncounted reports whether the Job controller has Pods that it has not counted yet.
func uncounted(j *batchv1.Job) bool {
	u := j.Status.UncountedTerminatedPods
	return u != nil && len(u.Succeeded)+len(u.Failed) > 0
}

// total returns the number of objects.
func (i inventory) total() (n int) {
	for line, count := range i {
		if !strings.HasPrefix(line, "state of ") {
			n += count
		}
	}
	return n
}

// states returns the lines about states, in order.
func (i inventory) states() (lines []string) {
	for _, line := range slices.Sorted(maps.Keys(i)) {
		if strings.HasPrefix(line, "state of ") {
			lines = append(lines, fmt.Sprintf("%d × %s", i[line], line))
		}
	}
	return lines
}

// differences returns a line for each description whose counts differ: "2 and 3 × Pod load/web".
func (i inventory) differences(other inventory) (lines []string) {
	all := maps.Clone(i)
	maps.Copy(all, other)
	for _, line := range slices.Sorted(maps.Keys(all)) {
		if i[line] != other[line] {
			lines = append(lines, fmt.Sprintf("%d and %d × %s", i[line], other[line], line))
		}
	}
	return lines
}
