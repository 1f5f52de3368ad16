package main

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// shardingLog is what a replica has printed, and what was done to it.
type shardingLog struct {
	name     string
	handlers []handling
	holds    []hold
}

// handling is one call of a handler.
type handling struct {
	replica, key, version string
	from, to              time.Duration
	done                  bool // to its end, and not only until its context ended
}

// hold is what a replica held from a time on.
type hold struct {
	at    time.Duration
	slots uint64
}

// stopped is a time in which a process did not run.
type stopped struct{ from, to time.Duration }

// readLog reads a replica's log. A handler that has not ended has gone on until the process's end. A process
// that was stopped while it held a key does not know that its time is over, and may run on for a moment
// afterwards: this part is left out, as documented.
func readLog(name, path string, end time.Duration, stops []stopped) (*shardingLog, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	l := &shardingLog{name: name}
	open := make(map[string]int)
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		var word, key, version string
		var at time.Duration
		var slots uint64
		switch word, _, _ = strings.Cut(line, " "); word {
		case "held":
			if _, err := fmt.Sscanf(line, "held %d %x", &at, &slots); err == nil {
				l.holds = append(l.holds, hold{at, slots})
			}
		case "start":
			if _, err := fmt.Sscanf(line, "start %d %s %s", &at, &key, &version); err != nil {
				continue // The process was killed while it wrote this.
			}
			if _, twice := open[key]; twice {
				return nil, fmt.Errorf("%s handles %s twice at %v", name, key, at)
			}
			open[key] = len(l.handlers)
			l.handlers = append(l.handlers, handling{replica: name, key: key, version: version, from: at, to: end})
		case "done", "ended":
			if _, err := fmt.Sscanf(line, word+" %d %s %s", &at, &key, &version); err != nil {
				continue
			}
			if i, ok := open[key]; ok {
				l.handlers[i].to, l.handlers[i].done = at, word == "done"
				delete(open, key)
			}
		}
	}
	for _, s := range stops { // It says nothing itself.
		i, _ := slices.BinarySearchFunc(l.holds, s.from,
			func(h hold, at time.Duration) int { return cmp.Compare(h.at, at) })
		l.holds = slices.Insert(l.holds, i, hold{s.from, 0})
	}
	l.holds = append(l.holds, hold{end, 0})
	for i := range l.handlers {
		for _, s := range stops {
			// A resumed process may have decided to begin before it was stopped.
			if h := &l.handlers[i]; h.from <= s.to+overrun && h.to > s.from {
				h.to = max(h.from, s.from)
			}
		}
	}
	return l, lines.Err()
}

// overrun is how long after SIGCONT the handlers of a process that was stopped are left out.
const overrun = time.Second

// checkTwice returns an error for each key that two replicas handled at the same time.
func checkTwice(logs []*shardingLog) (errs []error) {
	byKey := make(map[string][]handling)
	for _, l := range logs {
		for _, h := range l.handlers {
			byKey[h.key] = append(byKey[h.key], h)
		}
	}
	for key, handlers := range byKey {
		slices.SortFunc(handlers, func(a, b handling) int { return cmp.Compare(a.from, b.from) })
		last := handlers[0]
		for _, h := range handlers[1:] {
			if h.from < last.to && h.replica != last.replica {
				errs = append(errs, fmt.Errorf("%s is with two replicas: %s from %v to %v, and %s from %v to %v",
					key, last.replica, last.from, last.to, h.replica, h.from, h.to))
			}
			if h.to > last.to {
				last = h
			}
		}
	}
	return errs
}

// unhandled returns the keys whose last version was not handled to the end by any replica.
func unhandled(logs []*shardingLog, versions map[string]string) (keys []string) {
	handled := make(map[string]bool)
	for _, l := range logs {
		for _, h := range l.handlers {
			if h.done && h.version == versions[h.key] {
				handled[h.key] = true
			}
		}
	}
	for key := range versions {
		if !handled[key] {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// gaps returns the times in which a slot had no holder, between the first time that all slots were held and
// the end. Replicas print what they hold 20 ms late at most.
func gaps(logs []*shardingLog, end time.Duration) (found []stopped) {
	type change struct {
		at      time.Duration
		replica int
		slots   uint64
	}
	var changes []change
	for i, l := range logs {
		for _, h := range l.holds {
			changes = append(changes, change{h.at, i, h.slots})
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	held := make([]uint64, len(logs))
	var since [shardingSlots]time.Duration // when the slot's holder had gone, or 0
	began := false
	for _, c := range changes {
		if c.at >= end {
			break
		}
		held[c.replica] = c.slots
		all := uint64(0)
		for _, h := range held {
			all |= h
		}
		began = began || all == 1<<shardingSlots-1
		if !began {
			continue
		}
		for s := range since {
			isHeld := all>>s&1 == 1
			if !isHeld && since[s] == 0 {
				since[s] = c.at
			} else if isHeld && since[s] != 0 {
				found = append(found, stopped{since[s], c.at})
				since[s] = 0
			}
		}
	}
	return found
}

// shardingTotal is what all histories have measured.
type shardingTotal struct {
	handlers int
	// for each kind of event, the longest time that a slot had no holder after it
	gaps map[string][]time.Duration
}

func (t *shardingTotal) print(lease time.Duration) {
	fmt.Printf(
		"Longest time that a slot had no holder after each event, with a lease of %v:\n\n%-28s %6s %8s %8s\n",
		lease, "event", "times", "median", "longest")
	var names []string
	for name := range t.gaps {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		g := t.gaps[name]
		slices.Sort(g)
		fmt.Printf("%-28s %6d %7.2fs %7.2fs\n", name, len(g), g[len(g)/2].Seconds(), g[len(g)-1].Seconds())
	}
}

// measure adds what the history shows to the total, and returns the names of its events.
func (h *history) measure(logs []*shardingLog, total *shardingTotal) string {
	for _, l := range logs {
		total.handlers += len(l.handlers)
	}
	longest := make([]time.Duration, len(h.events))
	for _, g := range gaps(logs, monotonic()) {
		for i, e := range slices.Backward(h.events) {
			if e.at <= g.from+50*time.Millisecond {
				longest[i] = max(longest[i], g.to-g.from)
				break
			}
		}
	}
	var names []string
	for i, e := range h.events {
		total.gaps[e.name] = append(total.gaps[e.name], longest[i])
		names = append(names, fmt.Sprintf("%s (%.2f s)", e.name, longest[i].Seconds()))
	}
	return strings.Join(names, ", ")
}
