// Package handlers tests public controllers, and the queue of client-go, with package handlertest. Its README
// says what was found.
package handlers
