package sharding

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
)

// The API server creates a Lease that is updated after it was deleted, unless the update names the UID: then
// a member that others have found dead could renew its record. So each update and delete must name it.
func TestLeasesNameTheUID(t *testing.T) {
	const lease = `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"group-table","uid":"7-7","resourceVersion":"12"}}`
	type names struct {
		UID             string `json:"uid"`
		ResourceVersion string `json:"resourceVersion"`
	}
	named := make(map[string]names)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Metadata, Preconditions names }
		if data, err := io.ReadAll(r.Body); err == nil && len(data) > 0 {
			if err := json.Unmarshal(data, &body); err != nil {
				t.Error(err)
			}
		}
		if named[r.Method] = body.Metadata; r.Method == http.MethodDelete {
			named[r.Method] = body.Preconditions
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, lease)
	}))
	defer server.Close()
	// Later versions of client-go write protobuf unless JSON is asked for.
	content := rest.ContentConfig{ContentType: "application/json"}
	client, err := coordination.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: content})
	if err != nil {
		t.Fatal(err)
	}
	store := Leases(client, "ns")
	r, err := store.Get(t.Context(), "group-table")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(t.Context(), r.Name, r.Version); err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		if got, want := named[method], (names{"7-7", "12"}); got != want {
			t.Errorf("%s named %v, want %v", method, got, want)
		}
	}
}
