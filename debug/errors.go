package debug

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

const (
	// maxErrorGroups is how many errors a page lists, and someErrors how many failures it looks at for them.
	maxErrorGroups = 10
	someErrors     = 100
)

// errorGroup are keys whose last errors differ in nothing but names and numbers.
type errorGroup struct {
	// Error has … where they differ.
	Error   string `json:"error"`
	Failing int    `json:"failing"`
	GivenUp int    `json:"given_up"`
	// Contains is the longest part that they have in common: ?error= with it shows these keys. It is empty if that is too short.
	Contains string `json:"contains,omitempty"`
}

// errorGroups are counted by their Error.
type errorGroups map[string]*errorGroup

// add counts a key with that text.
func (g errorGroups) add(key string, f failure) {
	if f.Err == "" || f.state == "" {
		return
	}
	pattern := patternOf(f.Err, key)
	e := g[pattern]
	if e == nil {
		longest := slices.MaxFunc(strings.Split(pattern, gap), func(a, b string) int { return cmp.Compare(len(a), len(b)) })
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

var (
	words = regexp.MustCompile(`[^\s:;,"'()\[\]{}=]+`)
	// constant are words with digits that are the same for many keys, such as the status 503.
	constant = regexp.MustCompile(`^[0-9]{3}$`)
)

// patternOf returns an error with a gap for the key, and for each word that has a digit.
func patternOf(err, key string) string {
	if len(key) > 2 { // A shorter one is a part of many words.
		err = strings.ReplaceAll(err, key, gap)
	}
	return words.ReplaceAllStringFunc(err, func(word string) string {
		if word == key || strings.Contains(word, gap) || strings.ContainsAny(word, "0123456789") && !constant.MatchString(word) {
			return gap
		}
		return word
	})
}
