package debug

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// errorGroup are keys whose last errors differ in nothing but names and numbers: Error has … there. Contains
// is the longest part that they share, empty if that is too short: ?error= with it shows these keys.
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
	if e := p.at(codes); k.failedState() == stateGivenUp {
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

const (
	// gap stands for what differs from key to key, and codeMark in a pattern for what may be a code.
	gap      = "…"
	codeMark = "\x00"
	// separators are between the words of an error.
	separators = " \t\r\n:;,\"'()[]{}="
)

// code is a word that may be one. A named one is one by its form or by the word before.
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
	var text strings.Builder
	before := "" // the word before
	for err != "" {
		length := strings.IndexAny(err, separators)
		if length < 0 {
			length = len(err)
		}
		word, rest := err[:length], err[length:]
		isCode, named := codeLike(before, word)
		switch {
		case word != "" && (word == key || strings.Contains(word, gap)):
			text.WriteString(gap)
		case isCode:
			text.WriteString(codeMark)
			codes = append(codes, code{word, named})
		case strings.ContainsAny(word, "0123456789"):
			text.WriteString(gap)
		default:
			text.WriteString(word)
		}
		between := len(rest) - len(strings.TrimLeft(rest, separators))
		text.WriteString(rest[:between])
		before, err = word, rest[between:]
	}
	return text.String(), codes
}

// codeNames are how words end that name a code.
var codeNames = []string{"status", "code", "http", "error", "err", "errno", "sqlstate", "exit", "signal"}

// codeLike reports whether a word may be a code: a number of five digits at most, or digits with capitals,
// such as 40P01 and ORA-00060. It is named if it has the value of an HTTP status, or comes after a word such
// as "status".
func codeLike(before, word string) (is, named bool) {
	const digits, capitals = "0123456789", "ABCDEFGHIJKLMNOPQRSTUVWXYZ-_"
	isNumber := word != "" && strings.Trim(word, digits) == ""
	isMixed := !isNumber && strings.ContainsAny(word, digits) && strings.Trim(word, digits+capitals) == ""
	if is = isNumber && len(word) <= 5 || isMixed && len(word) <= 12; !is {
		return false, false
	}
	before = strings.ToLower(before)
	number, _ := strconv.Atoi(word)
	named = len(word) == 3 && http.StatusText(number) != "" || strings.HasPrefix(before, "http/") ||
		slices.ContainsFunc(codeNames, func(name string) bool { return strings.HasSuffix(before, name) })
	return true, named
}
