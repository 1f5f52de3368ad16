// Package dashboards holds tests of the dashboard and the alert rules in docs, with Prometheus' own parser.
package dashboards
