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
// is the longest part that they share, empty if that is too short: &error= with it shows these keys, and
// others whose errors contain it.
type errorGroup struct {
	Error    string `json:"error"`
	Failing  int    `json:"failing"`
	GivenUp  int    `json:"given_up"`
	Contains string `json:"contains,omitempty"`
}

// errorsByPattern has the errors that are alike but for words that may be codes, such as the status of an
// answer.
type errorsByPattern map[string][]codedError

// codedError is the error of a key: its codes stand, in turn, where its pattern has a codeMark.
type codedError struct {
	codes     []code
	isGivenUp bool
}

const (
	// maxErrorGroups is how many errors a page lists.
	maxErrorGroups = 10
	// maxCodes is how many values a code may have: more are names.
	maxCodes = 8
	// A number that nothing names is a code if its values have that many keys each, on average.
	keysOfCode = 3
)

// add adds the error of a key, if it has one.
func (e errorsByPattern) add(k knownKey) {
	if f := k.failure(); f != nil && f.Err != "" {
		pattern, codes := patternOf(f.Err, keyText(k.key()))
		e[pattern] = append(e[pattern], codedError{codes, k.isGivenUp()})
	}
}

// groups returns the errors that most keys have.
func (e errorsByPattern) groups() []errorGroup {
	byText := make(map[string]errorGroup)
	for pattern, errors := range e {
		isName := namesIn(errors)
		for _, err := range errors {
			text := pattern
			for i, c := range err.codes {
				if isName[i] {
					c.text = gap
				}
				text = strings.Replace(text, codeMark, c.text, 1)
			}
			group := byText[text]
			if err.isGivenUp {
				group.GivenUp++
			} else {
				group.Failing++
			}
			byText[text] = group
		}
	}
	var all []errorGroup
	for text, group := range byText {
		group.Error, group.Contains = short(text, maxError), longestPart(text)
		all = append(all, group)
	}
	slices.SortFunc(all, func(a, b errorGroup) int {
		return cmp.Or(cmp.Compare(b.Failing+b.GivenUp, a.Failing+a.GivenUp), cmp.Compare(a.Error, b.Error))
	})
	return all[:min(len(all), maxErrorGroups)]
}

// namesIn reports which codes of errors with one pattern are names after all: they have too many values.
func namesIn(errors []codedError) []bool {
	isName := make([]bool, len(errors[0].codes))
	for i := range isName {
		values, isNamed := make(map[string]bool), false
		for _, err := range errors {
			c := err.codes[i]
			values[c.text], isNamed = true, isNamed || c.isNamed
		}
		isName[i] = len(values) > maxCodes || !isNamed && len(errors) < keysOfCode*len(values)
	}
	return isName
}

// longestPart returns the longest part of text without a gap, or nothing if that is too short for a search.
func longestPart(text string) string {
	parts := strings.Split(text, gap)
	longest := slices.MaxFunc(parts, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
	longest = strings.Trim(longest, " :")
	if len(longest) < 4 || len(longest) > maxKeyBytes || printable(longest) != longest {
		return ""
	}
	return longest
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

// code is a word that may be one. It isNamed if it is the value of an HTTP status, or comes after a word such
// as "status".
type code struct {
	text    string
	isNamed bool
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
