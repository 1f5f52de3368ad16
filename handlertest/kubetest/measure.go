package kubetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// withoutVersions returns the content of an object without its kind and what each write changes.
func withoutVersions(o client.Object) map[string]any {
	content := contentOf(o)
	delete(content, "apiVersion")
	delete(content, "kind")
	meta, _ := content["metadata"].(map[string]any)
	for _, field := range []string{"resourceVersion", "generation", "managedFields"} {
		delete(meta, field)
	}
	return content
}

// measured returns the label and the text of an object without what differs from run to run.
func (c *Cluster) measured(kind schema.GroupVersionKind, o client.Object) (label, text string) {
	content, name := withoutVersions(o), o.GetName()
	if o.GetGenerateName() != "" {
		name = o.GetGenerateName() + "*"
		unstructured.RemoveNestedField(content, "metadata", "name")
	}
	withoutTimes(content)
	data, err := json.Marshal(content)
	if err != nil {
		panic(err)
	}
	return kind.Kind + " " + strings.TrimPrefix(o.GetNamespace()+"/", "/") + name, string(data)
}

// withoutTimes takes times, UIDs and observed generations out.
func withoutTimes(value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, below := range v {
			if key == "deletionTimestamp" {
				v[key] = "set"
			} else if key == "uid" || key == "observedGeneration" || below == nil || isTime(below) {
				delete(v, key)
			} else {
				withoutTimes(below)
			}
		}
	case []any:
		for _, below := range v {
			withoutTimes(below)
		}
	}
}

// isTime reports whether a value is a time, such as that of a condition or of an annotation.
func isTime(value any) bool {
	text, _ := value.(string)
	_, err := time.Parse(time.RFC3339, text)
	return err == nil
}

// measure is all of the cluster that must be equal in all runs.
func (c *Cluster) measure() any {
	c.mu.Lock()
	defer c.mu.Unlock()
	texts := make(map[string][]string) // by labels: objects whose names the cluster has made have one
	for _, kind := range c.kinds() {
		for _, o := range sorted(c.truth[kind]) {
			label, text := c.measured(kind, o)
			texts[label] = append(texts[label], text)
		}
	}
	outcome := make(map[string]string)
	for label, all := range texts {
		slices.Sort(all) // Not by their names, which differ from run to run.
		outcome[label] = all[0]
		for i, text := range all[1:] {
			outcome[fmt.Sprintf("%s (%d)", label, i+2)] = text
		}
	}
	return outcome
}
