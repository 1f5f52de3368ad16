// Package handlers tests public controllers, and the queue of client-go, with package handlertest. docs/testing-handlers.md says what was found.
package handlers
