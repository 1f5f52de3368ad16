package recent

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/keyedqueue/workqueue/handlertest/kubetest"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// schemeWith returns a scheme with the kinds of Kubernetes and those that add registers.
func schemeWith(add ...func(*runtime.Scheme) error) *runtime.Scheme {
	all := runtime.NewScheme()
	for _, add := range append(add, scheme.AddToScheme) {
		must(add(all))
	}
	return all
}

// wantReport wants a mistake to be found, under that schedule if there is one, and those words in the report.
func wantReport(t *testing.T, scenario func(*kubetest.Scenario), schedule string, words ...string) {
	t.Helper()
	t.Setenv("HANDLERTEST", schedule)
	found := kubetest.Find(t, scenario)
	t.Log(found)
	for _, word := range words {
		if !strings.Contains(found, word) {
			t.Errorf("the report does not say %q", word)
		}
	}
}
