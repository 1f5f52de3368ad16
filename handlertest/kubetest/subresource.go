package kubetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
	k.dial.Do(func() {
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
	o := &unstructured.Unstructured{}
	if err == nil {
		err = o.UnmarshalJSON(data)
	}
	if err != nil {
		return nil, err
	}
	query := r.URL.Query()
	force := query.Get("force") == "true"
	patch, name := client.RawPatch(types.ApplyPatchType, data), path.Base(r.URL.Path)
	err = a.client.patch(r.Context(), o, patch, name, client.PatchOptions{
		DryRun: query["dryRun"], Force: &force, FieldManager: query.Get("fieldManager")})
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

func (s subresource) Get(context.Context, client.Object, client.Object, ...client.SubResourceGetOption) error {
	return unknownSubresource("gets", s.name)
}

func (s subresource) Create(ctx context.Context, o, sub client.Object, _ ...client.SubResourceCreateOption) error {
	e, ok := sub.(*policyv1.Eviction)
	if s.name != "eviction" || !ok {
		return unknownSubresource("creates", s.name)
	}
	var opts []client.DeleteOption
	if d := e.DeleteOptions; d != nil {
		opts = append(opts, &client.DeleteOptions{Preconditions: d.Preconditions, DryRun: d.DryRun})
	}
	return s.client.Delete(ctx, o, opts...)
}

func (s subresource) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	var options client.SubResourceUpdateOptions
	options.ApplyOptions(opts)
	if options.SubResourceBody != nil {
		o = options.SubResourceBody
	}
	return s.client.update(ctx, o, s.name, options.UpdateOptions)
}

func (s subresource) Patch(ctx context.Context, o client.Object, patch client.Patch,
	opts ...client.SubResourcePatchOption) error {
	var options client.SubResourcePatchOptions
	options.ApplyOptions(opts)
	if options.SubResourceBody != nil {
		o = options.SubResourceBody
	}
	return s.client.patch(ctx, o, patch, s.name, options.PatchOptions)
}
