package main

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestObjectLine(t *testing.T) {
	for _, test := range []struct {
		kind, want string
		object     metav1.ObjectMeta
	}{
		{"Namespace", "Namespace load", metav1.ObjectMeta{Name: "load"}},
		{"Pod", "Pod load/web-5d9-*, of ReplicaSet web-5d9", metav1.ObjectMeta{
			Namespace: "load", Name: "web-5d9-x7k2p", GenerateName: "web-5d9-", OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-5d9"}},
		}},
		{"Pod", "Pod load/web, finalizers a b, being deleted", metav1.ObjectMeta{
			Namespace: "load", Name: "web", Finalizers: []string{"b", "a"}, DeletionTimestamp: &metav1.Time{Time: time.Now()},
		}},
		{"ClusterTrustBundle", "ClusterTrustBundle signer:server:*", metav1.ObjectMeta{Name: "signer:server:033abd03"}},
		{"ClusterRole", "ClusterRole system:node", metav1.ObjectMeta{Name: "system:node"}},
	} {
		if got := objectLine(test.kind, &test.object); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

func TestInventory(t *testing.T) {
	a := inventory{"Pod a-*": 2, "Job j": 1, "state of Pods: Running": 2}
	b := inventory{"Pod a-*": 3, "Job j": 1, "state of Pods: Running": 3, "Secret s": 1}
	want := []string{"2 and 3 × Pod a-*", "0 and 1 × Secret s", "2 and 3 × state of Pods: Running"}
	if got := a.differences(b); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := a.differences(a); len(got) > 0 {
		t.Errorf("an inventory differs from itself: %q", got)
	}
	if a.total() != 3 {
		t.Errorf("%d objects, want 3", a.total())
	}
	if got := a.states(); !slices.Equal(got, []string{"2 × state of Pods: Running"}) {
		t.Errorf("the states are %q", got)
	}
}

func TestCheckReports(t *testing.T) {
	all := map[string]int{}
	for i := range 100 {
		if firstRestarts(i) == 3 {
			all[podName(i)] = 4
		}
	}
	if err := checkReports(all, 100, 4, true); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(map[string]int){
		"missing":     func(m map[string]int) { delete(m, podName(0)) },
		"wrong count": func(m map[string]int) { m[podName(0)] = 7 },
		"too few":     func(m map[string]int) { m[podName(8)] = 4 },
		"none at all": func(m map[string]int) { m[podName(9)] = 4 },
	} {
		spoiled := map[string]int{}
		for k, v := range all {
			spoiled[k] = v
		}
		spoil(spoiled)
		if err := checkReports(spoiled, 100, 4, true); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	delete(all, podName(0))
	if err := checkReports(all, 100, 4, false); err != nil {
		t.Errorf("half-way: %v", err)
	}
}
