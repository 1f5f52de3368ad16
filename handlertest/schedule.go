package handlertest

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// site is a place in a run at which something may be disturbed: the n-th of its kind with that name, counted
// from 1. So the other disturbances of a schedule stay where they are when one is taken out.
type site struct {
	kind, name string
	n          int
}

// The kinds of disturbances. Their durations mean:
const (
	crashes  = "crash"    // how long the process is down
	lag      = "lag"      // how much later the cache shows a change
	relist   = "relist"   // how long the watch is lost before the cache lists anew, and skips changes
	slow     = "slow"     // how much longer the beginning of a call, or a call of a client, takes
	late     = "late"     // how much later an add reaches the queue, or another program reacts
	again    = "again"    // how long after a key was handed out it is added once more
	fail     = "fail"     // how long a call of a client takes to fail
	lost     = "lost"     // how long after a write took effect its caller gets an error
	conflict = "conflict" // how long somebody writes to an object just before the process does
	sometime = "sometime" // how long after the run began somebody does what Scenario.Sometime says
)

func (s site) String() string {
	if s.name == "" {
		return fmt.Sprintf("%s#%d", s.kind, s.n)
	}
	return fmt.Sprintf("%s:%s#%d", s.kind, url.QueryEscape(s.name), s.n)
}

// schedule is everything that is disturbed in a run. The empty one disturbs nothing.
type schedule map[site]time.Duration

func (s schedule) sites() []site {
	return slices.SortedFunc(maps.Keys(s), compareSites)
}

func compareSites(a, b site) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name), cmp.Compare(a.n, b.n))
}

// String returns the schedule as parseSchedule reads it.
func (s schedule) String() string {
	var parts []string
	for _, at := range s.sites() {
		parts = append(parts, fmt.Sprintf("%v=%v", at, s[at]))
	}
	return strings.Join(parts, " ")
}

func parseSchedule(text string) (schedule, error) {
	s := make(schedule)
	for part := range strings.FieldsSeq(text) {
		at, duration, _ := strings.Cut(part, "=")
		what, number, _ := strings.Cut(at, "#")
		kind, escaped, _ := strings.Cut(what, ":")
		name, err1 := url.QueryUnescape(escaped)
		n, err2 := strconv.Atoi(number)
		d, err3 := time.ParseDuration(duration)
		known := faultOf[kind] != 0 || kind == sometime
		if err := cmp.Or(err1, err2, err3); err != nil || d <= 0 || n <= 0 || !known {
			return nil, fmt.Errorf("%q is no disturbance; one looks like crash#3=1s or lag:pods#2=300ms", part)
		}
		s[site{kind, name, n}] = d
	}
	return s, nil
}
