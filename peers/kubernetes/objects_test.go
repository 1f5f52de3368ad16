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
			Namespace: "load", Name: "web-5d9-x7k2p", GenerateName: "web-5d9-",
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-5d9"}},
		}},
		{"Pod", "Pod load/web, finalizers a b, being deleted", metav1.ObjectMeta{
			Namespace: "load", Name: "web", Finalizers: []string{"b", "a"},
			DeletionTimestamp: &metav1.Time{Time: time.Now()},
		}},
		{"ClusterTrustBundle", "ClusterTrustBundle signer:server:*",
			metav1.ObjectMeta{Name: "signer:server:033abd03"}},
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
