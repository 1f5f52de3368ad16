package debug

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// maxErrorGroups is how many errors a page lists.
const maxErrorGroups = 10

// errorGroup are keys whose last errors differ in nothing but names and numbers.
type errorGroup struct {
	// Error has … where they differ.
	Error   string `json:"error"`
	Failing int    `json:"failing"`
	GivenUp int    `json:"given_up"`
	// Contains is the longest part that they have in common: ?error= with it shows these keys. It is empty if
	// that is too short.
	Contains string `json:"contains,omitempty"`
}

// errorGroups are counted by their Error.
type errorGroups map[string]*errorGroup

// countErrors counts the errors of all failing and given-up keys that the pools remember, and of those
// given-up keys of the queue that were read, each key once. It returns how many keys it has counted.
func (r *reading) countErrors() (groups errorGroups, keys int) {
	groups, seen := make(errorGroups), make(map[any]struct{})
	count := func(f failure) {
		if _, again := seen[f.Key]; !again {
			seen[f.Key] = struct{}{}
			groups.add(keyText(f.Key), f)
		}
	}
	for _, p := range r.pools {
		for k := range p.pool.KeptFailures() {
			count(failure{FailedKey: k, state: stateFailing})
		}
	}
	for _, p := range r.pools { // Without its Stats, which may ask a server.
		for k := range p.pool.GivenUpKeys() {
			count(failure{FailedKey: k, state: stateGivenUp})
		}
	}
	for _, k := range r.keys.givenUp {
		count(keptFailure(k))
	}
	return groups, len(seen)
}

// add counts a key with that text.
func (g errorGroups) add(key string, f failure) {
	if f.Err == "" {
		return
	}
	pattern := patternOf(f.Err, key)
	e := g[pattern]
	if e == nil {
		parts := strings.Split(pattern, gap)
		longest := slices.MaxFunc(parts, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
		e = &errorGroup{Error: short(pattern, maxError), Contains: strings.Trim(longest, " :")}
		if len(e.Contains) < 4 || len(e.Contains) > maxKey || printable(e.Contains) != e.Contains {
			e.Contains = ""
		}
		g[pattern] = e
	}
	if f.state == stateGivenUp {
		e.GivenUp++
	} else {
		e.Failing++
	}
}

// sorted returns the errors that most keys have.
func (g errorGroups) sorted() (all []errorGroup) {
	for _, e := range g {
		all = append(all, *e)
	}
	slices.SortFunc(all, func(a, b errorGroup) int {
		return cmp.Or(cmp.Compare(b.Failing+b.GivenUp, a.Failing+a.GivenUp), cmp.Compare(a.Error, b.Error))
	})
	return all[:min(len(all), maxErrorGroups)]
}

// gap stands for what differs from key to key.
const gap = "…"

// separators are between the words of an error.
const separators = " \t\r\n:;,\"'()[]{}="

// patternOf returns an error with a gap for the key, and for each word that has a digit, except for the
// status of an HTTP answer.
func patternOf(err, key string) string {
	if len(key) > 2 { // A shorter one is a part of many words.
		err = strings.ReplaceAll(err, key, gap)
	}
	var pattern strings.Builder
	before := "" // the word before
	for err != "" {
		length := strings.IndexAny(err, separators)
		if length < 0 {
			length = len(err)
		}
		word, rest := err[:length], err[length:]
		varies := word == key || strings.Contains(word, gap) || strings.ContainsAny(word, "0123456789")
		if word != "" && varies && !isStatus(before, word, rest) {
			pattern.WriteString(gap)
		} else {
			pattern.WriteString(word)
		}
		between := len(rest) - len(strings.TrimLeft(rest, separators))
		pattern.WriteString(rest[:between])
		before, err = word, rest[between:]
	}
	return pattern.String()
}

// isStatus reports whether a word is the status of an HTTP answer, such as 503 in "status code 503" and "503
// Service Unavailable".
func isStatus(before, word, rest string) bool {
	code, err := strconv.Atoi(word)
	text := http.StatusText(code)
	if err != nil || len(word) != 3 || text == "" {
		return false
	}
	before = strings.ToLower(before)
	named := slices.ContainsFunc([]string{"status", "code", "http", "error"}, func(name string) bool {
		return strings.HasSuffix(before, name)
	})
	rest = strings.TrimLeft(rest, " ")
	return named || strings.HasPrefix(before, "http/") ||
		len(rest) >= len(text) && strings.EqualFold(rest[:len(text)], text)
}
