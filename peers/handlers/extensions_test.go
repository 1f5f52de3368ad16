package handlers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/scheme"
	"k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	"k8s.io/apiextensions-apiserver/pkg/controller/apiapproval"
	"k8s.io/apiextensions-apiserver/pkg/controller/nonstructuralschema"
	"k8s.io/apiextensions-apiserver/pkg/controller/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/klog/v2"

	"github.com/keyedqueue/workqueue/handlertest"
	"github.com/keyedqueue/workqueue/handlertest/kubetest"
)

func definition(plural string, structural bool) *apiextensions.CustomResourceDefinition {
	crd := &apiextensions.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural +
		".example.k8s.io"}}
	crd.Spec.Group = "example.k8s.io"
	crd.Spec.Names = apiextensions.CustomResourceDefinitionNames{Plural: plural, Kind: "Kind" + plural}
	schema := &apiextensions.JSONSchemaProps{Type: "object"}
	if !structural {
		schema.Properties = map[string]apiextensions.JSONSchemaProps{"x": {}} // It has no type.
	}
	crd.Spec.Versions = []apiextensions.CustomResourceDefinitionVersion{{Name: "v1",
		Schema: &apiextensions.CustomResourceValidation{OpenAPIV3Schema: schema}}}
	return crd
}

// The three controllers that write conditions into CustomResourceDefinitions: of names, of schemas and of
// approvals. They write to the same objects, and conflict with each other.
func TestConditionControllers(t *testing.T) {
	handlertest.Converges(t, func(s *handlertest.Scenario[string]) {
		cluster := kubetest.NewCluster(s, scheme.Scheme)
		others := &fake.Clientset{}
		cluster.Attach(&others.Fake, nil)
		definitions := others.ApiextensionsV1().CustomResourceDefinitions()
		ctx := context.Background()
		create := func(crd *apiextensions.CustomResourceDefinition) {
			if _, err := definitions.Create(ctx, crd, metav1.CreateOptions{}); err != nil {
				panic(err)
			}
		}
		change := func(name string, change func(*apiextensions.CustomResourceDefinition)) {
			crd, err := definitions.Get(ctx, name, metav1.GetOptions{})
			if err == nil {
				change(crd)
				_, err = definitions.Update(ctx, crd, metav1.UpdateOptions{})
			}
			if err != nil {
				panic(err)
			}
		}
		create(definition("foos", false))
		create(definition("bars", true))
		s.At(20*time.Second, func() {
			change("foos.example.k8s.io",
				func(crd *apiextensions.CustomResourceDefinition) { crd.Spec = definition("foos", true).Spec })
		})
		s.At(20*time.Second+5*time.Millisecond, func() {
			change("bars.example.k8s.io", func(crd *apiextensions.CustomResourceDefinition) {
				crd.Annotations = map[string]string{apiextensions.KubeAPIApprovedAnnotation: "https://github.com/kubernetes/kubernetes/pull/1"}
			})
		})
		s.At(40*time.Second, func() {
			if err := definitions.Delete(ctx, "foos.example.k8s.io", metav1.DeleteOptions{}); err != nil {
				panic(err)
			}
			create(definition("foos", false))
		})
		s.Settle = time.Minute
		s.Measure = func() any {
			all, err := definitions.List(ctx, metav1.ListOptions{})
			if err != nil {
				panic(err)
			}
			var lines []string
			for _, crd := range all.Items {
				for _, c := range crd.Status.Conditions {
					lines = append(lines, fmt.Sprintln(crd.Name, c.Type, c.Status, c.Reason, c.Message))
				}
				lines = append(lines, fmt.Sprintln(crd.Name, crd.Status.AcceptedNames))
			}
			slices.Sort(lines)
			return fmt.Sprint(lines)
		}
		s.Program = func(p *handlertest.Process) {
			client := &fake.Clientset{}
			cluster.Attach(&client.Fake, p)
			factory := externalversions.NewSharedInformerFactory(client, 0)
			informer, getter := factory.Apiextensions().V1().CustomResourceDefinitions(), client.ApiextensionsV1()
			names := status.NewNamingConditionController(klog.Background(), informer, getter)
			schemas := nonstructuralschema.NewConditionController(informer, getter)
			approvals := apiapproval.NewKubernetesAPIApprovalPolicyConformantConditionController(informer, getter)
			factory.StartWithContext(p.Context())
			var running sync.WaitGroup
			running.Go(func() { names.RunWithContext(p.Context()) })
			running.Go(func() { schemas.RunWithContext(1, p.Context()) })
			running.Go(func() { approvals.RunWithContext(1, p.Context()) })
			running.Wait()
			factory.Shutdown()
		}
	})
}
