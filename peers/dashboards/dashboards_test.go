package dashboards

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/prom"
	"github.com/keyedqueue/workqueue/sharding"
	"github.com/keyedqueue/workqueue/sharding/shardingprom"
	"github.com/keyedqueue/workqueue/worker"
)

const (
	dashboardFile = "../../docs/grafana-workqueue.json"
	alertsFile    = "../../docs/workqueue-alerts.yml"
)

// dashboard is what these tests look at of a Grafana dashboard.
type dashboard struct {
	Panels []struct {
		Title   string
		Targets []struct {
			Expr       string
			Datasource struct{ UID string }
		}
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	content, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// exported returns the names of the time series of prom, and which of them have been used.
func exported(t *testing.T) map[string]bool {
	t.Helper()
	registry := prometheus.NewRegistry()
	provider := prom.NewProvider(registry, prom.Options{})
	queue := priorityqueue.New(priorityqueue.Config[string]{Name: "q", MetricsProvider: provider})
	defer queue.ShutDown()
	provider.WatchQueue("shared",
		func() workqueue.Stats { return workqueue.Stats{OnHold: 1, Shared: &leasing.Stats{}} })
	provider.InspectPool("p", worker.Inspector{Stats: func() worker.Stats {
		times := &workqueue.Histogram{Bounds: provider.PoolHistogramBounds(),
			Counts: make([]uint64, len(provider.PoolHistogramBounds())+1)}
		return worker.Stats{Queue: "q", Durations: times, Changes: times, BusiestShare: 0.1}
	}})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, f := range families {
		names[f.GetName()] = false
		if len(f.Metric) > 0 && f.Metric[0].Histogram != nil {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				names[f.GetName()+suffix] = false
			}
			if strings.HasPrefix(f.GetName(), "workqueue_pool_") {
				delete(names, f.GetName()) // It is never a native histogram, whose series would have this name.
			}
		}
	}
	return names
}

// exportedBySharding returns the names of the metrics of shardingprom.
func exportedBySharding(t *testing.T) map[string]bool {
	t.Helper()
	member, err := sharding.Join(t.Context(), sharding.Memory(), sharding.Config{Group: "g"})
	if err != nil {
		t.Fatal(err)
	}
	queue, err := sharding.NewQueue(workqueue.NewTypedRateLimitingQueue(
		workqueue.DefaultTypedControllerRateLimiter[string]()), member,
		sharding.QueueConfig[string]{Keys: func(context.Context) (iter.Seq[string], error) { return nil, nil }})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(shardingprom.NewCollector(member, map[string]shardingprom.Queue{"q": queue}))
	families, err := registry.Gather()
	queue.ShutDown()
	if err := errors.Join(err, member.Leave(t.Context())); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, f := range families {
		names[f.GetName()] = false
	}
	return names
}

// check parses an expression and fails if it has a metric that prom does not export.
func check(t *testing.T, where, expr string, names map[string]bool) {
	t.Helper()
	root, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		t.Errorf("%s: %s: %v", where, expr, err)
		return
	}
	parser.Inspect(root, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			if _, ok := names[s.Name]; !ok {
				t.Errorf("%s: %s: there is no metric %q", where, expr, s.Name)
			}
			names[s.Name] = true
		}
		return nil
	})
}

// The alerts fire when they should: alerts_test.yml has the scenarios. CI installs promtool, and sets
// WORKQUEUE_PROMTOOL so that the test fails without it.
func TestAlertScenarios(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		promtool, err = exec.LookPath("bin/promtool")
	}
	if err != nil {
		if os.Getenv("WORKQUEUE_PROMTOOL") != "" {
			t.Fatal(err)
		}
		t.Skip("no promtool; install-promtool.sh gets it")
	}
	out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", "alerts_test.yml").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	scenarios, err := os.ReadFile("alerts_test.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, alert := range readAlerts(t) {
		if !strings.Contains(string(scenarios), alert.Alert) {
			t.Errorf("no scenario makes %s fire", alert.Alert)
		}
	}
}

// docs/operating.md has a section for every alert, and for no other. Each says what the alert means and what
// to do.
func TestOperatingGuide(t *testing.T) {
	guide, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, alert := range readAlerts(t) {
		want = append(want, alert.Alert)
	}
	var got []string
	for _, section := range strings.Split(string(guide), "\n### ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		got = append(got, name)
		if strings.HasPrefix(strings.TrimSpace(text), "**") {
			t.Errorf("the section for %s does not begin with what it means", name)
		}
		if !strings.Contains(text, "\n**Do:** ") {
			t.Errorf("the section for %s does not say what to do", name)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the guide has sections for %q, the alerts are %q", got, want)
	}
}

// fillIn replaces Grafana's variables by what they may stand for.
var fillIn = strings.NewReplacer("$__rate_interval", "5m", "$job", "controller|worker", "$name", ".*")

func TestDashboardExpressions(t *testing.T) {
	names := exported(t)
	expressions := 0
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			expressions++
			expr := fillIn.Replace(target.Expr)
			if strings.Contains(expr, "$") || target.Datasource.UID != "${datasource}" {
				t.Errorf("panel %q: unknown variable in %s, or the data source %q", p.Title, expr, target.Datasource.UID)
			}
			check(t, "panel "+p.Title, expr, names)
			if n := strings.Count(target.Expr, `{job=~"$job", name=~"$name"`); n != strings.Count(target.Expr,
				"workqueue_") {
				t.Errorf("panel %q: not all metrics are of $job and $name: %s", p.Title, target.Expr)
			}
		}
	}
	if expressions < 12 {
		t.Errorf("%d expressions", expressions)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !names[name] && !strings.HasSuffix(name, "_count") && !strings.HasSuffix(name, "_sum") {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// The rules are what Prometheus itself takes for rules: the same as promtool check rules.
func TestAlertRules(t *testing.T) {
	names := exported(t)
	maps.Copy(names, exportedBySharding(t))
	for _, rule := range readAlerts(t) {
		check(t, "alert "+rule.Alert, rule.Expr, names)
		if rule.For == 0 || rule.Labels["severity"] == "" {
			t.Errorf("alert %s: for %v, labels %v", rule.Alert, rule.For, rule.Labels)
		}
		for _, annotation := range []string{"summary", "description"} {
			text := rule.Annotations[annotation]
			if !strings.Contains(text, "{{ $labels.name }}") && !strings.Contains(text, "{{ $labels.group }}") {
				t.Errorf("alert %s: the %s names neither the queue nor the group", rule.Alert, annotation)
			}
		}
	}
}

func readAlerts(t *testing.T) (alerts []rulefmt.Rule) {
	t.Helper()
	content, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(content, false, model.UTF8Validation, parser.NewParser(parser.Options{}),
		slog.Default())
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, group := range groups.Groups {
		alerts = append(alerts, group.Rules...)
	}
	return alerts
}
