package kubetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// cacheReader reads from the cache of a process, which takes no time.
type cacheReader struct{ manager *Manager }

func (r cacheReader) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	c := r.manager.cluster
	kind, err := apiutil.GVKForObject(into, c.scheme)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	o, err := c.find(r.manager.cache, kind, key)
	if err != nil {
		return err
	}
	return copyInto(into, o, kind)
}

// List returns objects in another order each time that something has changed. A field needs an index.
func (r cacheReader) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	m, c := r.manager, r.manager.cluster
	kind, err := c.kindOfItems(list)
	if err != nil {
		return err
	}
	var options client.ListOptions
	options.ApplyOptions(opts)
	c.mu.Lock()
	all, version, indexes := sorted(m.cache[kind]), m.shown[kind], maps.Clone(m.indexes)
	c.mu.Unlock() // An index may use a client.
	random := rand.New(rand.NewPCG(uint64(version), uint64(len(all))))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	all, err = selected(all, options, func(by fields.Requirement) (func(client.Object) []string, error) {
		values := indexes[index{kind, by.Field}]
		switch {
		case by.Operator == selection.NotEquals:
			return nil, errors.New("kubetest: non-exact field matches are not supported by the cache")
		case values == nil:
			return nil, fmt.Errorf("kubetest: an index with the name field:%s does not exist", by.Field)
		}
		return values, nil
	})
	if err != nil {
		return err
	}
	if options.Limit > 0 {
		all = all[:min(len(all), int(options.Limit))]
	}
	list.SetResourceVersion(fmt.Sprint(version))
	return setItems(list, all, kind, copyInto)
}
