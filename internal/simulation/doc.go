// Package simulation is tests alone: they simulate what becomes of failing and of periodic keys, and write
// the tables and figures of docs/backoff.md.
package simulation
