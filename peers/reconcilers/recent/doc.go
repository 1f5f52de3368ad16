// Package recent is package reconcilers for those that need a later version of controller-runtime.
package recent
