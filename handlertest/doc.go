// Package handlertest tests whether a handler is right.
package handlertest
