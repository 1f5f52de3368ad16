package debug

import (
	"cmp"
	"context"
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

// matchingReport counts keys with certain errors.
type matchingReport struct {
	Failing int `json:"failing"`
	GivenUp int `json:"given_up"`
	// More reports that there was no time to count all.
	More bool `json:"more,omitempty"`
}

// listErrors lists the keys whose errors contain r.Errors, which the buttons for all of them are for, instead
// of all that fail or were given up.
func (r *queuePage) listErrors(ctx context.Context, h *Handler, read *reading) {
	groups := make(errorGroups)
	r.Failing, r.GivenUp, r.Matching = []keyReport{}, []keyReport{}, new(matchingReport)
	ctx, done, noTurn := searchTurn(ctx, h.searching, countTime)
	defer done()
	filter := keyFilter{state: allSets, errorText: r.Errors}
	r.Matching.More = noTurn != nil || read.visit(ctx, filter, func(k knownKey) bool {
		keys, n := &r.Failing, &r.Matching.Failing
		if k.state == stateGivenUp {
			keys, n = &r.GivenUp, &r.Matching.GivenUp
		}
		if *n++; len(*keys) < r.limit {
			*keys = append(*keys, k.report())
		}
		groups.add(k)
		return true
	})
	r.ErrorGroups = groups.sorted()
}

// countErrors counts the errors of all failing and given-up keys that the pools remember, and of those
// given-up keys of the queue that were read. It returns how many keys it has counted.
func (r *reading) countErrors(ctx context.Context) (groups errorGroups, keys int) {
	groups = make(errorGroups)
	r.visit(ctx, keyFilter{state: allSets, atHand: true}, func(k knownKey) bool {
		groups.add(k)
		keys++
		return true
	})
	return groups, keys
}

func (g errorGroups) add(k knownKey) {
	if k.failed.Err == "" {
		return
	}
	pattern := patternOf(k.failed.Err, keyText(k.key))
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
	if k.state == stateGivenUp {
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
