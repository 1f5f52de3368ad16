// Package dashboards holds tests of the dashboard and the alert rules in docs, with Prometheus' own parser.
// Those files are outside of this module, so a cached result may be older than they are: use go test
// -count=1.
package dashboards
