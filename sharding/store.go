package sharding

import (
	"context"
	"errors"
	"time"
)

// Store keeps the records of groups, each conditional on its version. [Leases] and [Memory] return one. All
// safety rests on three promises:
//
//   - Get and List return what is stored at some moment after the call began, and never an older state.
//   - Create, Update and Delete are atomic, and take effect only under their condition.
//   - Each change gives the record a version that no record of that name ever had before.
//
// They may be broken by a restore, which takes all records back to an earlier state and version. A call that
// returns any other error than those below may still take effect, at once or later. All methods are safe for
// concurrent use. They return soon after ctx is done.
type Store interface {
	// Get returns the record of that name, or ErrNotFound.
	Get(ctx context.Context, name string) (Record, error)
	// List returns the records of a group, and the version from which to watch them.
	List(ctx context.Context, group string) (records []Record, version string, err error)
	// Watch calls changed for each change of the group's records after version, in order, until ctx is done
	// or version is too old. It may be late and may leave out versions of a record that was changed again. It
	// should end by itself every few minutes if its connection may be dead without notice. Its error is only
	// for logs: the caller lists and watches again.
	Watch(ctx context.Context, group, version string, changed func(Event)) error
	// Create stores a new record and returns it with its version, or ErrExists.
	Create(ctx context.Context, r Record) (Record, error)
	// Update replaces the record if its version still is r.Version, and returns it with its new one.
	// Otherwise it returns ErrConflict, or ErrNotFound.
	Update(ctx context.Context, r Record) (Record, error)
	// Delete deletes the record if its version still is version. Otherwise it returns ErrConflict, or
	// ErrNotFound.
	Delete(ctx context.Context, name, version string) error
}

// The errors of a [Store] after which a call has no effect any more. They may be wrapped. A client that
// repeats a request may get one of the first three because of its own first request.
var (
	ErrNotFound = errors.New("no such record")
	ErrExists   = errors.New("the record exists")
	ErrConflict = errors.New("the record has another version")
	// ErrRefused: this client must not do that, or not in this form, and the call has had no effect. A Store
	// need not know it.
	ErrRefused = errors.New("the server refuses the request")
)

// Record is what a [Store] keeps: a member of a group, or the group's table.
type Record struct {
	Name, Group string
	// Version and UID are given by the store. A record that was deleted and created again has another UID.
	Version, UID string
	// Of what a member writes, the protocol reads Name and Data.
	Data string

	// What follows is for display.
	Holder  string
	Lease   time.Duration
	Renewed time.Time
	Held    int // how many slots a member holds
}

// Event is a change of a record. If it was deleted, only Name and Group of Record are certain to be set.
type Event struct {
	Record  Record // after the change
	Deleted bool
}
