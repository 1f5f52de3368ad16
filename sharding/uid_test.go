package sharding

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// The API server creates a Lease that is updated after it was deleted, unless the update names the UID: then a member that
// others have found dead could renew its record. The fake has no UIDs and no conditions, so this looks at the requests.
func TestLeasesNameTheUID(t *testing.T) {
	client := fake.NewSimpleClientset(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "group-table", UID: "7-7", ResourceVersion: "12",
	}})
	store := Leases(client.CoordinationV1(), "ns")
	r, err := store.Get(t.Context(), "group-table")
	if err != nil {
		t.Fatal(err)
	}
	client.ClearActions()
	if _, err := store.Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(t.Context(), r.Name, r.Version); err != nil {
		t.Fatal(err)
	}
	actions := client.Actions()
	m, ok := actions[0].(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease)
	if !ok || m.UID != "7-7" || m.ResourceVersion != "12" {
		t.Errorf("updated with UID %q and resource version %q", m.UID, m.ResourceVersion)
	}
	p := actions[1].(clienttesting.DeleteActionImpl).DeleteOptions.Preconditions
	if p == nil || *p.UID != "7-7" || *p.ResourceVersion != "12" {
		t.Errorf("deleted on the conditions %v", p)
	}
}
