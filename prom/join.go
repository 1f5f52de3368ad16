package prom

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
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
// The help and the label names of a metric must be those of the others. (Join finds out how Kubernetes marks
// the metric's stability, as in "[BETA] Current depth of workqueue".) It returns an error if a metric is
// registered that differs. A metric that is registered later and differs hides ours of that name, because the
// registry would refuse to serve any metric.
//
// It would also refuse if one of our queues had the name of another queue. Ours is then exported as "NAME
// (keyedqueue)", as soon as the other has that name, and so is a pool with the name of another's controller.
// A scrape fails if the other queue is made during it; the next succeeds. Join sees only the names of
// collectors that have one metric each, as those of Kubernetes and controller-runtime do.
//
// A registry that was joined with the same options before gives back the provider of that time, so that
// queues with one name add up. Two providers with other options do not see each other's names: then no queue
// of one may have the name of a queue of the other.
func Join(registerer prometheus.Registerer, opts Options) (*Provider, error) {
	if registerer == nil {
		return nil, errors.New("prom: the registerer is nil")
	}
	p, err := newProvider(opts)
	if err != nil {
		return nil, err
	}
	p.joined = &joined{registerer: registerer, known: map[*prometheus.Desc]theirs{}}
	if err := errors.Join(checkJoined(p, p.families), checkJoined(p, p.poolFamilies)); err != nil {
		return nil, err
	}
	mark := newMark(p, opts)
	if err := registerer.Register(mark); err != nil {
		var already prometheus.AlreadyRegisteredError
		if errors.As(err, &already) {
			if first, ok := already.ExistingCollector.(joinedMark); ok {
				return first.provider, nil
			}
		}
		return nil, err
	}
	if err := registerer.Register(p); err != nil {
		registerer.Unregister(mark)
		return nil, err
	}
	return p, nil
}

// joinedMark is a collector without metrics, by which Join finds the provider of an earlier call. A registry
// refuses a second collector with the same descriptor, and names the first.
type joinedMark struct {
	probe
	provider *Provider
}

// newMark returns the mark of p, whose descriptor is the same for the same options.
func newMark(p *Provider, opts Options) joinedMark {
	name := prometheus.BuildFQName(opts.Namespace, "",
		fmt.Sprintf("workqueue_joined_%x", sha256.Sum256(fmt.Appendf(nil, "%#v", opts))))
	return joinedMark{probe{prometheus.NewDesc(name, "", nil, nil)}, p}
}

func checkJoined[S any](p *Provider, families []family[S]) error {
	for i := range families {
		if p.joined.find(families[i].descs).desc == nil {
			return fmt.Errorf("prom: the registry has a metric %s with other help or other labels: for the one of "+
				"controller-runtime set Options.ControllerRuntime, for others another Namespace", families[i].Name)
		}
	}
	return nil
}

// stabilities are what Kubernetes puts before the help of its metrics. Join tries each.
var stabilities = []string{"", "[ALPHA] ", "[BETA] ", "[STABLE] "}

// nameSuffix is put behind the name of a queue that is not the only one of its name in a joined registry.
const nameSuffix = " (keyedqueue)"

// joined finds out what others have registered. It is safe for concurrent use.
type joined struct {
	registerer prometheus.Registerer
	mu         sync.Mutex // guards known
	// known has what find has found out for good, by the first of descs.
	known map[*prometheus.Desc]theirs
}

// theirs is what others have registered under the name of one of our metrics.
type theirs struct {
	// desc is the one of our descriptors that is equal to theirs, or nil if none is.
	desc *prometheus.Desc
	// collector has their metrics. It is nil if nothing is registered or it has several families.
	collector prometheus.Collector
}

// find returns what others have registered under the name that descs have. If nothing is registered, the
// descriptor is the first one.
func (j *joined) find(descs []*prometheus.Desc) theirs {
	j.mu.Lock()
	defer j.mu.Unlock()
	if known, ok := j.known[descs[0]]; ok {
		return known
	}
	var fit []*prometheus.Desc
	for _, d := range descs {
		if j.fits(d) {
			fit = append(fit, d)
		}
	}
	if len(fit) == len(descs) {
		return theirs{desc: descs[0]} // Nothing is registered yet, so ask again at the next scrape.
	}
	var found theirs
	if len(fit) > 0 {
		found = theirs{fit[0], j.collectorOf(fit[0])}
	}
	j.known[descs[0]] = found
	return found
}

// fits reports whether the registry could take a collector with that descriptor beside those that it has. A
// registry does not list its descriptors, but refuses a descriptor that differs from an earlier one of the
// same name. It checks a collector's descriptors in order, so an invalid one behind desc keeps anything from
// being registered: if the error is about that one, desc fits.
func (j *joined) fits(desc *prometheus.Desc) bool {
	err := j.registerer.Register(probe{desc, invalidDesc})
	return err != nil && strings.Contains(err.Error(), invalidName)
}

// collectorOf returns the collector that has this descriptor and no other, or nil.
func (j *joined) collectorOf(desc *prometheus.Desc) prometheus.Collector {
	err := j.registerer.Register(probe{desc})
	if err == nil {
		// Theirs has other constant labels, so no metric of theirs can be equal to one of ours.
		j.registerer.Unregister(probe{desc})
		return nil
	}
	var already prometheus.AlreadyRegisteredError
	errors.As(err, &already)
	return already.ExistingCollector
}

// addNames adds to names those of the queues or pools that t has, which are the values of that label.
func (t theirs) addNames(names map[string]bool, label string) {
	if t.collector == nil {
		return
	}
	metrics := make(chan prometheus.Metric, 100)
	go func() {
		defer close(metrics)
		t.collector.Collect(metrics)
	}()
	for m := range metrics {
		var read dto.Metric
		if m.Write(&read) != nil {
			continue // The registry reports it.
		}
		for _, l := range read.Label {
			if l.GetName() == label {
				names[l.GetValue()] = true
			}
		}
	}
}

const invalidName = "workqueue_never_registered"

// invalidDesc is invalid because it has a label twice.
var invalidDesc = prometheus.NewDesc(invalidName, "", []string{"twice", "twice"}, nil)

// probe is a collector that a registry is asked to take.
type probe []*prometheus.Desc

func (p probe) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range p {
		ch <- desc
	}
}

func (p probe) Collect(chan<- prometheus.Metric) {}
