package sharding

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
)

// leasesOf returns the Leases of a server.
func leasesOf(t *testing.T, serve http.HandlerFunc) Store {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	// Later versions of client-go write protobuf unless JSON is asked for.
	content := rest.ContentConfig{ContentType: "application/json"}
	client, err := coordination.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: content})
	if err != nil {
		t.Fatal(err)
	}
	return Leases(client, "ns")
}

// client-go repeats a request when the answer says when. The first one may have been written. So a refusal of
// the second is not certain, and that of a single request is.
func TestRefusalOfRepeatedRequest(t *testing.T) {
	for _, repeats := range []bool{false, true} {
		for _, status := range []int{http.StatusForbidden, http.StatusUnauthorized} {
			requests := 0
			store := leasesOf(t, func(w http.ResponseWriter, _ *http.Request) {
				if requests++; repeats && requests%2 == 1 {
					w.Header().Set("Retry-After", "0")
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				w.WriteHeader(status)
			})
			_, err := store.Update(t.Context(), Record{Name: "g-table", Version: "7-7/12"})
			_, createErr := store.Create(t.Context(), Record{Name: "g-table"})
			if errors.Is(err, ErrRefused) == repeats || errors.Is(createErr, ErrRefused) == repeats || err == nil ||
				repeats != (requests == 4) {
				t.Errorf("FAILURE: repeated: %t, %d requests, %d: %v; %v", repeats, requests, status, err, createErr)
			}
		}
	}
}

// The API server creates a Lease that is updated after it was deleted, unless the update names the UID: then
// a member that others have found dead could renew its record. So each update and delete must name it.
func TestLeasesNameTheUID(t *testing.T) {
	const lease = `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"group-table","uid":"7-7","resourceVersion":"12"}}`
	type names struct {
		UID             string `json:"uid"`
		ResourceVersion string `json:"resourceVersion"`
	}
	named := make(map[string]names)
	store := leasesOf(t, func(w http.ResponseWriter, r *http.Request) {
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
	})
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
