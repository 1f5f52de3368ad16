package prom

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Join returns a provider that adds its metrics to those of other queues in the same registry, under the same
// names. NewProvider cannot do this, as a registry takes each name from one collector only. In a program on
// Kubernetes' libraries:
//
//	p, err := prom.Join(legacyregistry.Registerer(), prom.Options{})
//
// and then workqueue.SetProvider(p). Module controllerruntime does it for controller-runtime's registry, with
// Options.ControllerRuntime.
//
// The help and the label names of a metric must be those of the others. (Join finds out how Kubernetes marks the
// metric's stability, as in "[BETA] Current depth of workqueue".) It returns an error if a metric is registered
// that differs. One that is registered later and differs hides ours of that name, because the registry would refuse
// to serve any metric. It would do so, too, if two queues, ours and another, had the same name: this is for the
// caller to avoid.
func Join(registerer prometheus.Registerer, opts Options) (*Provider, error) {
	if registerer == nil {
		return nil, errNoRegisterer
	}
	p, err := New(opts)
	if err != nil {
		return nil, err
	}
	p.joined = &joined{registerer: registerer, known: map[*prometheus.Desc]*prometheus.Desc{}}
	if err := errors.Join(checkJoined(p, p.families), checkJoined(p, p.poolFamilies)); err != nil {
		return nil, err
	}
	return p, registerer.Register(p)
}

func checkJoined[S any](p *Provider, families []family[S]) error {
	for i := range families {
		if p.desc(families[i].descs) == nil {
			return fmt.Errorf("prom: the registry has a metric %s with other help or other labels", families[i].Name)
		}
	}
	return nil
}

// stabilities are what Kubernetes puts before the help of its metrics. Join tries each.
var stabilities = []string{"", "[ALPHA] ", "[BETA] ", "[STABLE] "}

// joined finds the descriptors that fit a registry. It is safe for concurrent use.
type joined struct {
	registerer prometheus.Registerer
	mu         sync.Mutex // guards known
	// known has what desc has found out for good, by the first of descs.
	known map[*prometheus.Desc]*prometheus.Desc
}

// desc returns which of descs is equal to what others have registered under this name, or nil if none is. If
// nothing is registered, it returns the first one.
func (j *joined) desc(descs []*prometheus.Desc) *prometheus.Desc {
	j.mu.Lock()
	defer j.mu.Unlock()
	if desc, ok := j.known[descs[0]]; ok {
		return desc
	}
	var fit []*prometheus.Desc
	for _, d := range descs {
		if j.fits(d) {
			fit = append(fit, d)
		}
	}
	if len(fit) == len(descs) {
		return descs[0] // Nothing is registered yet, so ask again at the next scrape.
	}
	fit = append(fit, nil)
	j.known[descs[0]] = fit[0]
	return fit[0]
}

// fits reports whether the registry could take a collector with that descriptor beside those that it has. A registry
// does not list its descriptors, but refuses one that differs from an earlier one of the same name. It checks a
// collector's descriptors in order, so an invalid one behind desc keeps anything from being registered: if the error
// is about that one, desc fits.
func (j *joined) fits(desc *prometheus.Desc) bool {
	err := j.registerer.Register(probe{desc})
	return err != nil && strings.Contains(err.Error(), invalidName)
}

const invalidName = "workqueue_never_registered"

// invalidDesc is invalid because it has a label twice.
var invalidDesc = prometheus.NewDesc(invalidName, "", []string{"twice", "twice"}, nil)

// probe is a collector for fits.
type probe struct{ desc *prometheus.Desc }

func (p probe) Describe(ch chan<- *prometheus.Desc) {
	ch <- p.desc
	ch <- invalidDesc
}

func (p probe) Collect(chan<- prometheus.Metric) {}
