// Package prom stands for the provider of metrics.
package prom
