package redisqueue

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/keyedqueue/workqueue"
)

const (
	maxSnapshot = 512 // how many keys of each state a Snapshot has
	maxPage     = 256 // how many keys one call reads
)

// row is a key as read.lua returns it.
type row struct {
	encoded  string
	state    state
	failures int
	due      time.Time // zero: it does not wait
	givenAt  time.Time // zero: it was not given up
	reason   string    // the attempts and the error of a key that was given up
	losses   float64
	name     string // of the holder
	aside    bool
	causes   workqueue.Causes // only of a key that is read alone
	offset   int64            // how far the queue's clock is ahead of the server's, in microseconds
}

// at returns the server's time of one on the queue's clock.
func (r row) at(micros int64) time.Time { return time.UnixMicro(micros - r.offset) }

// state is where a key is in its life, see batch.lua.
type state struct {
	since  int64 // when a queued key was queued
	holder string
	fence  int64
	again  bool
}

// readRows reads what read.lua returns for args: rows, and where to go on, empty at the end.
func (s *shard[T]) readRows(ctx context.Context, args ...any) (rows []row, next string, err error) {
	reply, err := s.runRead(ctx, args...)
	if err != nil {
		return nil, "", err
	}
	f := fieldsOf(reply, 2)
	next = f.text(0)
	offset := int64(f.number(1))
	for _, fields := range reply[min(2, len(reply)):] {
		fields, _ := fields.([]any)
		if f.next(fields, 10); f.text(0) == filler {
			continue
		}
		r := row{encoded: f.text(0), state: f.state(1), failures: f.number(2), reason: f.text(5), name: f.text(7), aside: f.text(8) == "1", offset: offset}
		r.due, r.givenAt, r.losses, r.causes = f.time(3, offset), f.time(4, offset), f.float(6), f.causes(9)
		rows = append(rows, r)
	}
	return rows, next, f.err
}

// runRead runs read.lua. It returns when ctx ends: by default go-redis does not interrupt a call then, and its goroutine stays until
// the client's ReadTimeout is over.
func (s *shard[T]) runRead(ctx context.Context, args ...any) (fields []any, err error) {
	type answer struct {
		fields []any
		err    error
	}
	result := make(chan answer, 1)
	go func() {
		fields, err := readScript.RunRO(ctx, s.q.client, s.names.shard, args...).Slice()
		result <- answer{fields, err}
	}()
	select {
	case a := <-result:
		fields, err = a.fields, a.err
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("redisqueue: %w", err)
	}
	return fields, nil
}

// fields are those of a row that read.lua has returned. Others may have written what is in them, so all is checked here: err is the
// first thing that makes no sense.
type fields struct {
	all []any
	err error
}

func fieldsOf(all []any, n int) *fields {
	f := &fields{}
	f.next(all, n)
	return f
}

// next goes on to the next row.
func (f *fields) next(all []any, n int) {
	f.all = all
	if len(all) < n {
		f.bad(n, "a row that is too short")
		f.all = make([]any, n)
	}
}

func (f *fields) bad(i int, what string) {
	if f.err == nil {
		f.err = fmt.Errorf("%w: field %d is %.100q", errReply, i, what)
	}
}

// text returns a field, empty if there is none.
func (f *fields) text(i int) string {
	switch v := f.all[i].(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return ""
}

func (f *fields) float(i int) float64 {
	text := f.text(i)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0) {
		f.bad(i, text)
		return 0
	}
	return n
}

// number is float without what is not a whole number of a bearable size.
func (f *fields) number(i int) int {
	n := f.float(i)
	if n > 1<<53 {
		f.bad(i, f.text(i))
		return 0
	}
	return int(n)
}

// time returns a time of the queue's clock as one of the server's.
func (f *fields) time(i int, offset int64) time.Time {
	if n := f.float(i); n > 0 {
		return time.UnixMicro(int64(min(n, 1<<62)) - offset)
	}
	return time.Time{}
}

func (f *fields) state(i int) (s state) {
	text := f.text(i)
	p := parser{rest: text}
	switch len(text) {
	case 0:
		return s
	case 16:
		s.since = p.digits(16)
	case 28, 44:
		kind := p.take(1)
		s.holder, s.fence, s.again = p.take(11), p.digits(16), kind != "p"
		if s.again {
			p.digits(16)
		}
		p.bad = p.bad || !strings.Contains("pde", kind) || p.rest != ""
	default:
		p.bad = true
	}
	if p.bad {
		f.bad(i, text)
		return state{}
	}
	return s
}

func (f *fields) causes(i int) workqueue.Causes {
	causes, ok := decodeCauses(f.text(i))
	if !ok {
		f.bad(i, f.text(i))
	}
	return causes
}
