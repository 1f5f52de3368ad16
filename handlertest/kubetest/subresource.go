package kubetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func (k *kubeClient) Status() client.SubResourceWriter { return k.SubResource("status") }

func (k *kubeClient) SubResource(name string) client.SubResourceClient {
	k.withApply.Do(func() {
		var err error
		config := &rest.Config{Host: "http://kubetest", QPS: -1}
		k.overHTTP, err = client.New(config, client.Options{HTTPClient: &http.Client{Transport: applies{k}},
			Scheme: k.Scheme(), Mapper: k.RESTMapper()})
		must(err)
	})
	return subresource{k.overHTTP.SubResource(name), k, name}
}

// subresource is the status of objects, or the eviction of pods.
type subresource struct {
	client.SubResourceClient // for Apply, which the lowest version of controller-runtime that we require lacks
	client                   *kubeClient
	name                     string
}

// applies is the transport of a client of controller-runtime whose Apply is called.
type applies struct{ client *kubeClient }

// RoundTrip applies a status, and returns what a server answers.
func (a applies) RoundTrip(r *http.Request) (*http.Response, error) {
	data, err := io.ReadAll(r.Body)
	if err == nil {
		err = subresource{name: path.Base(r.URL.Path)}.check("apply")
	}
	o := &unstructured.Unstructured{}
	if err == nil {
		err = o.UnmarshalJSON(data)
	}
	if err != nil {
		return nil, err
	}
	query := r.URL.Query()
	force := query.Get("force") == "true"
	options := client.PatchOptions{DryRun: query["dryRun"], Force: &force}
	options.FieldManager = query.Get("fieldManager")
	err = a.client.patch(r.Context(), o, client.RawPatch(types.ApplyPatchType, data), options, true)
	code, answer := http.StatusOK, any(o)
	if refused := apierrors.APIStatus(nil); errors.As(err, &refused) {
		status := refused.Status()
		status.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("Status"))
		code, answer, err = int(status.Code), &status, nil
	}
	if err != nil {
		return nil, err
	}
	data, err = json.Marshal(answer)
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(data)), Request: r}, err
}

func (s subresource) check(verb string) error {
	if s.name != "status" || verb == "create" {
		return fmt.Errorf("kubetest: the cluster cannot %s the subresource %s: "+
			"it has status, and the eviction of pods", verb, s.name)
	}
	return nil
}

func (s subresource) Get(context.Context, client.Object, client.Object, ...client.SubResourceGetOption) error {
	return s.check("create")
}

func (s subresource) Create(ctx context.Context, o, sub client.Object, _ ...client.SubResourceCreateOption) error {
	e, ok := sub.(*policyv1.Eviction)
	if s.name != "eviction" || !ok {
		return s.check("create")
	}
	var opts []client.DeleteOption
	if d := e.DeleteOptions; d != nil {
		opts = append(opts, &client.DeleteOptions{Preconditions: d.Preconditions, DryRun: d.DryRun})
	}
	return s.client.Delete(ctx, o, opts...)
}

func (s subresource) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	if err := s.check("update"); err != nil {
		return err
	}
	var options client.SubResourceUpdateOptions
	options.ApplyOptions(opts)
	if options.SubResourceBody != nil {
		o = options.SubResourceBody
	}
	return s.client.update(ctx, o, s.client.optionsOf("updates", true, options.DryRun, options.FieldManager))
}

func (s subresource) Patch(ctx context.Context, o client.Object, patch client.Patch,
	opts ...client.SubResourcePatchOption) error {
	if err := s.check("patch"); err != nil {
		return err
	}
	var options client.SubResourcePatchOptions
	options.ApplyOptions(opts)
	if options.SubResourceBody != nil {
		o = options.SubResourceBody
	}
	return s.client.patch(ctx, o, patch, options.PatchOptions, true)
}
