// Package inherit counts what a program gets along with a queue: modules to look after, and bytes to ship.
// Its test writes a table of README.md.
package inherit
