package handlers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/controllers/service"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"

	"github.com/keyedqueue/workqueue/handlertest"
	"github.com/keyedqueue/workqueue/handlertest/kubetest"
)

// cloud has a load balancer for each Service, with its ports and hosts.
type cloud struct {
	cloudprovider.Interface // No other method is called.
	process                 *handlertest.Process
	balancers               map[string]string
}

func (c *cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return c, true }

func (c *cloud) GetLoadBalancerName(_ context.Context, _ string, s *corev1.Service) string {
	return s.Name
}

func (c *cloud) GetLoadBalancer(ctx context.Context, _ string,
	s *corev1.Service) (status *corev1.LoadBalancerStatus, exists bool, err error) {
	err = c.process.Read(ctx, func() error {
		_, exists = c.balancers[s.Name]
		return nil
	})
	return address(s), exists, err
}

func address(s *corev1.Service) *corev1.LoadBalancerStatus {
	return &corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.1", Hostname: s.Name}}}
}

func (c *cloud) EnsureLoadBalancer(ctx context.Context, cluster string, s *corev1.Service,
	nodes []*corev1.Node) (*corev1.LoadBalancerStatus, error) {
	return address(s), c.UpdateLoadBalancer(ctx, cluster, s, nodes)
}

func (c *cloud) UpdateLoadBalancer(ctx context.Context, _ string, s *corev1.Service,
	nodes []*corev1.Node) error {
	var hosts []string
	for _, n := range nodes {
		hosts = append(hosts, n.Name)
	}
	slices.Sort(hosts)
	balancer := fmt.Sprint("port ", s.Spec.Ports[0].Port, ", hosts ", hosts)
	return c.process.Write(ctx, "balances "+s.Name+": "+balancer,
		func() error { c.balancers[s.Name] = balancer; return nil })
}

func (c *cloud) EnsureLoadBalancerDeleted(ctx context.Context, _ string, s *corev1.Service) error {
	return c.process.Write(ctx, "no longer balances "+s.Name,
		func() error { delete(c.balancers, s.Name); return nil })
}

// services is a scenario of the service controller: a Service gets another port and, if asked for, nodes come
// and go, and a Service wants no balancer any more.
func services(nodesChange, release bool) func(s *handlertest.Scenario[string]) {
	return func(s *handlertest.Scenario[string]) {
		cluster := kubetest.NewCluster(s, scheme.Scheme)
		others := &fake.Clientset{}
		cluster.Attach(&others.Fake, nil)
		ctx := context.Background()
		services, nodes := others.CoreV1().Services("default"), others.CoreV1().Nodes()
		must := func(_ any, err error) {
			if err != nil {
				panic(err)
			}
		}
		change := func(name string, change func(*corev1.Service)) {
			service, err := services.Get(ctx, name, metav1.GetOptions{})
			must(service, err)
			change(service)
			must(services.Update(ctx, service, metav1.UpdateOptions{}))
		}
		node := func(name string) {
			must(nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: corev1.NodeSpec{ProviderID: "x://" + name},
				Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady,
					Status: corev1.ConditionTrue}}}}, metav1.CreateOptions{}))
		}
		if nodesChange {
			node("a")
			node("b")
			s.At(20*time.Second+5*time.Millisecond, func() { node("c") })
			s.At(21*time.Second, func() { must(nil, nodes.Delete(ctx, "a", metav1.DeleteOptions{})) })
		}
		for _, name := range []string{"web", "api"} {
			must(services.Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
				Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}}},
				metav1.CreateOptions{}))
		}
		s.At(20*time.Second, func() { change("web", func(s *corev1.Service) { s.Spec.Ports[0].Port = 443 }) })
		if release {
			s.At(40*time.Second,
				func() { change("api", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP }) })
		}
		balancers := make(map[string]string)
		s.Settle, s.Runs = 11*time.Minute, 200 // It tries again after up to 5 minutes.
		s.Measure = func() any {
			all, err := services.List(ctx, metav1.ListOptions{})
			must(all, err)
			var lines []string
			for _, s := range all.Items {
				lines = append(lines, fmt.Sprint(s.Name, " has the finalizers ", s.Finalizers, " and the addresses ",
					s.Status.LoadBalancer.Ingress))
			}
			for _, name := range slices.Sorted(maps.Keys(balancers)) {
				lines = append(lines, name+": "+balancers[name])
			}
			return strings.Join(lines, "\n")
		}
		s.Program = func(p *handlertest.Process) {
			client := &fake.Clientset{}
			// Recorders of events have goroutines of their own. If their writes were steps, what is a crash's number
			// would depend on the scheduler of Go.
			client.AddReactor("*", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, &corev1.Event{}, nil
			})
			cluster.Attach(&client.Fake, p)
			factory := informers.NewSharedInformerFactory(client, 0)
			c, err := service.New(&cloud{process: p, balancers: balancers}, client, factory.Core().V1().Services(),
				factory.Core().V1().Nodes(), "cluster", nil)
			must(c, err)
			factory.StartWithContext(p.Context())
			c.Run(p.Context(), 1, controllersmetrics.NewControllerManagerMetrics("test"))
			factory.Shutdown()
		}
	}
}

// The service controller of cloud-provider brings each Service a balancer with its ports and hosts.
func TestServiceController(t *testing.T) { handlertest.Converges(t, services(false, false)) }

// What was found in it. Each story is in the README.
func TestServiceControllerFindings(t *testing.T) {
	for _, c := range []struct {
		name     string
		scenario func(s *handlertest.Scenario[string])
		schedule string
		words    []string
	}{
		// When a Service wants no balancer any more, its finalizer goes first, and then the address in its status.
		// After a crash in between the address stays: no later call finds something to clean up.
		{"crash between two writes", services(false, true), "",
			[]string{"api has the finalizers [] and the addresses [{192.0.2.1", "crashes after that write"}},
		// The workers of Services and the one of nodes write the same balancer. If the older call ends last, its
		// hosts stay.
		{"two queues, one balancer", services(true, false), "slow:balances+web%3A+port+443%2C+hosts+%5Ba+b%5D#1=3s",
			[]string{"missing: web: port 443, hosts [b c]", "extra:   web: port 443, hosts [a b]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("HANDLERTEST", c.schedule)
			found := handlertest.Find(t, c.scenario)
			t.Log(found)
			for _, words := range c.words {
				if !strings.Contains(found, words) {
					t.Errorf("the report does not say %q", words)
				}
			}
		})
	}
}
