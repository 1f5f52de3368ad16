// Package compat holds tests that compare this module with the libraries whose API it mirrors:
// client-go's workqueue, apimachinery's wait, and controller-runtime as a user of both. It exports
// nothing. It has a module of its own, so that users of the library do not get what only these tests
// need.
//
// Of the workqueue the tests ask, in this order:
//
//   - Is everything there? api_test.go compares the exported names and what they mean to the compiler.
//   - Does a program compile, and do the same, after its import path was changed? See dropin_test.go.
//   - Do the two queues do the same? differential_test.go makes random calls on both.
//   - What do they do differently, and is that still so? See conformance_test.go, which lists
//     the promises that client-go does not keep, and differences_test.go. A
//     difference that is gone from client-go fails there too, because then the documentation is wrong.
//   - Do the two work together, and with programs that were written for client-go's? See interop_test.go and
//     controllerruntime_test.go. (Informers fill our queues in module examples, and in peers/kubernetes.)
package compat
