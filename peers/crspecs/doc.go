// Package crspecs runs controller-runtime's own tests of its priority queue against module
// controllerruntime's. Their source is read from the module cache when the test runs.
package crspecs
