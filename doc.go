// Package workqueue is a work queue for keys.
package workqueue
