package redisqueue

import (
	"slices"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
)

// opSeq is an operation's place among all of its shard.
type opSeq uint64

// op is an operation on the queue, as operations.lua executes it.
type op struct {
	code code
	text string // as operations.lua reads it, unless it merges
	seq  opSeq
	// fence is that of the hand-out that the operation is about: without that hand-out it means nothing. It is
	// noFence for an add of a key that was held when it was added, and empty for all others.
	fence string
	// onResult is called under the lock with what the server returned, or with why it will return nothing.
	onResult func(a opResult, err error)

	key string // of an add, or of what ends a hand-out, but empty for a key that no worker had

	// merges: while it was not sent, further adds of the key with the same code are merged into it. Those with a
	// delay are codeAddAfter, others with a priority codeAddPriority.
	merges   bool
	causes   workqueue.Causes // of codeAdd
	quiet    bool             // of codeAdd: all were quiet
	priority int              // the highest
	micros   uint64           // the shortest delay
}

// merge makes o do what a later add does as well, in the way in which the server would.
func (o *op) merge(later *op) {
	o.quiet = o.quiet && later.quiet
	for _, cause := range later.causes.Last {
		o.causes = o.causes.Plus(cause)
	}
	o.priority, o.micros = max(o.priority, later.priority), min(o.micros, later.micros)
}

func newOp(c code, text string) *op { return &op{code: c, text: string(c) + text} }

// noFence is the fence of an operation that may come late, and that a full server executes.
const noFence = "0000000000000000"

// isAdd reports whether a full server does not execute the operation. It executes what a worker says of its
// key, in that order: the Done frees memory, and without the add before it the key would be lost.
func (o *op) isAdd() bool { return o.fence == "" && o.code.isAdd() }

// isAboutHeld reports whether the operation means nothing without the hand-out that it is about.
func (o *op) isAboutHeld() bool { return o.fence != "" && o.fence != noFence }

// isDone reports whether a worker has called Done with the key.
func (o *op) isDone() bool { return o.key != "" && (o.code == codeDone || o.code == codeHandBack) }

// addKey is the same for adds that merge.
type addKey struct {
	code code
	key  string
}

// buffer has the operations of a shard that were not sent yet, in the order of the calls.
type buffer struct {
	adds, others []*op          // each in the order of opSeq; a full server takes no adds
	merging      map[addKey]*op // the newest one that merges
	newest       opSeq          // that of the newest operation
	discarded    opSeq          // that of the newest Remove: no add after it is merged into one before it
}

func (b *buffer) len() int { return len(b.adds) + len(b.others) }

// executed returns the opSeq up to which the server has executed everything, if no call is under way.
func (b *buffer) executed() opSeq {
	seq := b.newest + 1
	for _, ops := range [][]*op{b.adds, b.others} {
		if len(ops) > 0 {
			seq = min(seq, ops[0].seq)
		}
	}
	return seq - 1
}

// put gives an operation its opSeq, and returns it; for an add that is merged into an older one, that of the
// older.
//
// The older add need not move to the end: it is still to be executed. If a worker has the key then, its Done
// queues the key again, even if it stands behind the add.
func (b *buffer) put(o *op) opSeq {
	if o.merges {
		if older := b.merging[o.mergeKey()]; older != nil && older.seq > b.discarded {
			older.merge(o)
			return older.seq
		}
		b.merging[o.mergeKey()] = o
	}
	b.newest++
	o.seq = b.newest
	if o.isAdd() {
		b.adds = append(b.adds, o)
	} else {
		b.others = append(b.others, o)
	}
	if o.code == codeDiscard {
		b.discarded = o.seq
	}
	return o.seq
}

func (o *op) mergeKey() addKey { return addKey{o.code, o.key} }

// take removes and returns the operations of the next batch. work is what else the batch does; with noAdds it
// leaves the adds.
func (b *buffer) take(work int, noAdds bool) (ops []*op, encoded []any) {
	for size := 0; work < maxWork && size < maxBytes; {
		from := &b.others
		if !noAdds && len(b.adds) > 0 && (len(b.others) == 0 || b.adds[0].seq < b.others[0].seq) {
			from = &b.adds
		}
		if len(*from) == 0 {
			break
		}
		o := (*from)[0]
		(*from)[0] = nil
		*from = (*from)[1:]
		if o.merges && b.merging[o.mergeKey()] == o {
			delete(b.merging, o.mergeKey())
		}
		text := o.encode()
		if kind := code(text[0]); kind != codeByHolder {
			work += kind.work()
		} else {
			work += o.code.work()
		}
		size += len(text)
		ops, encoded = append(ops, o), append(encoded, text)
	}
	return ops, encoded
}

// putBack undoes take, for operations that were not executed: they go in front of those that have come since.
func (b *buffer) putBack(ops []*op) {
	var adds, others []*op
	for _, o := range ops {
		if !o.isAdd() {
			others = append(others, o)
			continue
		}
		adds = append(adds, o)
		if o.merges && b.merging[o.mergeKey()] == nil {
			b.merging[o.mergeKey()] = o // Otherwise there is a newer one. Both are executed, which does no harm.
		}
	}
	b.adds, b.others = append(adds, b.adds...), append(others, b.others...)
}

// hasAboutHeld reports whether any operation is about a key that the session holds.
func (b *buffer) hasAboutHeld() bool {
	return slices.ContainsFunc(b.others, (*op).isAboutHeld)
}

// dropAboutHeld removes the operations about keys that the session holds, and returns how many Dones were
// among them, also those that hand the key back.
func (b *buffer) dropAboutHeld() (dones int) {
	b.others = slices.DeleteFunc(b.others, func(o *op) bool {
		if o.isDone() {
			dones++
		}
		if o.isAboutHeld() && o.onResult != nil {
			o.onResult(opResult{}, leasing.ErrLost)
		}
		return o.isAboutHeld()
	})
	return dones
}

// drop removes all operations and returns them.
func (b *buffer) drop() []*op {
	all := append(b.adds, b.others...)
	b.adds, b.others = nil, nil
	clear(b.merging)
	return all
}
