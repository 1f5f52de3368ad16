// Package controllerruntime has as much of the API as the tests need.
package controllerruntime

import "github.com/keyedqueue/workqueue/priorityqueue"

type Reconciler[T comparable] struct{}

func (*Reconciler[T]) With(config priorityqueue.Config[T]) func() { return nil }

func With[T comparable](config priorityqueue.Config[T]) func() { return nil }
