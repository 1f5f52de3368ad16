// Package reconcilers tests public reconcilers of controller-runtime with package handlertest. The README of
// peers/handlers says what was found.
package reconcilers
