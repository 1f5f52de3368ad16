package debug

import (
	"cmp"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// errorGroup are keys whose last errors differ in nothing but names and numbers: Error has … there. Contains
// is the longest part that they share, empty if that is too short: &error= with it shows these keys.
type errorGroup struct {
	Error    string `json:"error"`
	Failing  int    `json:"failing"`
	GivenUp  int    `json:"given_up"`
	Contains string `json:"contains,omitempty"`
}

// errorGroups counts errors by their patterns.
type errorGroups map[string]*errorPattern

// errorPattern are errors that are alike but for words that may be codes, such as the status of an answer.
type errorPattern struct {
	// named reports which of these words are codes by their form, or by the word before.
	named []bool
	// groups has the errors by these words, joined.
	groups map[string]*codedErrors
}

// codedErrors are the errors of a pattern that have these words.
type codedErrors struct {
	errorGroup
	codes []string
}

const (
	// maxErrorGroups is how many errors a page lists.
	maxErrorGroups = 10
	// maxCodes is how many values a code may have: more are names.
	maxCodes = 8
	// A number that nothing names is a code if each of its values is there for that many keys.
	keysOfCode = 3
)

func (g errorGroups) add(k knownKey) {
	f := k.failure()
	if f == nil || f.Err == "" {
		return
	}
	pattern, words := patternOf(f.Err, keyText(k.key()))
	p := g[pattern]
	if p == nil {
		p = &errorPattern{make([]bool, len(words)), make(map[string]*codedErrors)}
		g[pattern] = p
	}
	codes := make([]string, len(words))
	for i, w := range words {
		codes[i], p.named[i] = w.text, p.named[i] || w.named
	}
	e := p.at(codes)
	if k.isGivenUp() {
		e.GivenUp++
	} else {
		e.Failing++
	}
}

// at returns the errors with these codes.
func (p *errorPattern) at(codes []string) *codedErrors {
	text := strings.Join(codes, codeMark)
	if p.groups[text] == nil {
		p.groups[text] = &codedErrors{codes: codes}
	}
	return p.groups[text]
}

// merge makes one of the errors that differ in names alone.
func (p *errorPattern) merge() {
	values, keys := make([]map[string]bool, len(p.named)), 0
	for i := range values {
		values[i] = make(map[string]bool)
	}
	for _, e := range p.groups {
		keys += e.Failing + e.GivenUp
		for i, code := range e.codes {
			values[i][code] = true
		}
	}
	isName := func(i int) bool {
		n := len(values[i])
		return n > maxCodes || !p.named[i] && keys < keysOfCode*n
	}
	old := p.groups
	p.groups = make(map[string]*codedErrors)
	for _, e := range old {
		for i := range e.codes {
			if isName(i) {
				e.codes[i] = gap
			}
		}
		all := p.at(e.codes)
		all.Failing, all.GivenUp = all.Failing+e.Failing, all.GivenUp+e.GivenUp
	}
}

// sorted returns the errors that most keys have.
func (g errorGroups) sorted() (all []errorGroup) {
	for pattern, p := range g {
		p.merge()
		for _, e := range p.groups {
			e.setText(pattern)
			all = append(all, e.errorGroup)
		}
	}
	slices.SortFunc(all, func(a, b errorGroup) int {
		return cmp.Or(cmp.Compare(b.Failing+b.GivenUp, a.Failing+a.GivenUp), cmp.Compare(a.Error, b.Error))
	})
	return all[:min(len(all), maxErrorGroups)]
}

// setText sets the texts of the errors that have e's codes in pattern.
func (e *codedErrors) setText(pattern string) {
	for _, code := range e.codes {
		pattern = strings.Replace(pattern, codeMark, code, 1)
	}
	parts := strings.Split(pattern, gap)
	longest := slices.MaxFunc(parts, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
	e.Error, e.Contains = short(pattern, maxError), strings.Trim(longest, " :")
	if len(e.Contains) < 4 || len(e.Contains) > maxKey || printable(e.Contains) != e.Contains {
		e.Contains = ""
	}
}

// gap stands for what differs from key to key, and codeMark in a pattern for what may be a code.
const (
	gap      = "…"
	codeMark = "\x00"
)

var (
	aWord  = regexp.MustCompile(`[^ \t\r\n:;,"'()\[\]{}=]+`)
	aDigit = regexp.MustCompile(`[0-9]`)
	// aCode is a number of five digits at most, or digits with capitals, such as 40P01 and ORA-00060.
	aCode = regexp.MustCompile(`^(?:[0-9]{1,5}|[0-9A-Z_-]*[A-Z_-][0-9A-Z_-]*)$`)
	// namesCode is a word before a code.
	namesCode = regexp.MustCompile(`(?i)^http/|(?:status|code|http|error|err|errno|sqlstate|exit|signal)$`)
)

// code is a word that may be one. A named one is the value of an HTTP status, or comes after a word such as
// "status".
type code struct {
	text  string
	named bool
}

// patternOf returns an error with a gap for the key and for each word that has a digit, but a codeMark for
// those that may be codes, and these.
func patternOf(err, key string) (pattern string, codes []code) {
	err = strings.ReplaceAll(err, codeMark, gap)
	if len(key) > 2 { // A shorter one is a part of many words.
		err = strings.ReplaceAll(err, key, gap)
	}
	last := ""
	pattern = aWord.ReplaceAllStringFunc(err, func(word string) string {
		before := last
		last = word
		switch {
		case word == key || strings.Contains(word, gap):
			return gap
		case !aDigit.MatchString(word):
			return word
		case len(word) > 12 || !aCode.MatchString(word):
			return gap
		}
		number, _ := strconv.Atoi(word)
		isStatus := len(word) == 3 && http.StatusText(number) != ""
		codes = append(codes, code{word, isStatus || namesCode.MatchString(before)})
		return codeMark
	})
	return pattern, codes
}
