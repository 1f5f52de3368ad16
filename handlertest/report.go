package handlertest

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"
)

// failure is what is wrong with a run. Shrinking keeps its kind.
type failure struct {
	kind, text string
	lines      []string // how an outcome differs; each may be known
}

// told is a line of a story.
type told struct {
	at   time.Duration
	call string // the key that the line is about, or ""
	text string
}

func (t told) String() string { return fmt.Sprintf("%9v  %s", t.at, t.text) }

// acceptance is a failure that the scenario knows.
type acceptance struct{ text, reason string }

// acceptedBy returns what accepts f, or nil. An outcome that differs in several lines must be known in each.
func (f *failure) acceptedBy(accepted []acceptance) (known []acceptance) {
	parts := f.lines
	if parts == nil {
		parts = []string{f.text}
	}
	for _, part := range parts {
		i := slices.IndexFunc(accepted, func(a acceptance) bool { return strings.Contains(part, a.text) })
		if i < 0 {
			return nil
		}
		if !slices.Contains(known, accepted[i]) {
			known = append(known, accepted[i])
		}
	}
	return known
}

// describe returns the failure, the story of the run and the line that repeats it. A shell takes what follows
// # for a comment.
func (s *search) describe(fixed schedule, failed *failure, how string) string {
	res, note := s.under(newDecider(fixed, 0), true), ""
	if res.failed != nil {
		failed = res.failed
	} else {
		note = "\nIt did not fail again when it was run for its story: the handler depends on something random."
	}
	line := fmt.Sprintf("repeat: %s='%v'%s", scheduleVariable, fixed, s.repeat)
	if len(fixed) == 0 {
		line = "It fails without a disturbance, too, now and then."
	} else if how != "" {
		line += "  # " + how
	}
	story := storyOf(res.story)
	if failed.kind == outcome {
		story = storiesOf(res.story, s.undisturbed.story, failed.lines)
	}
	return fmt.Sprintf("handlertest: %s%s\n\n%s\n%s", failed.text, note, story, line)
}

// storyOf returns the lines of a story; the first and the last ones of a long one.
func storyOf(lines []told) string { return cut(lines, 60, 20) }

func cut(lines []told, first, last int) string {
	var text strings.Builder
	for i, line := range lines {
		if n := len(lines) - first - last; n > 1 && i >= first && i < first+n {
			if i == first {
				fmt.Fprintf(&text, "           ... %d more lines ...\n", n)
			}
			continue
		}
		fmt.Fprintln(&text, line)
	}
	return text.String()
}

// storiesOf returns the story of a run, and that of the undisturbed one from where they part: only what
// concerns the keys in differing, if any key is in it.
func storiesOf(here, undisturbed []told, differing []string) string {
	here, undisturbed, left := concerning(here, undisturbed, differing)
	same := 0
	for same < min(len(here), len(undisturbed)) && here[same] == undisturbed[same] {
		same++
	}
	text := storyOf(here)
	if left > 0 {
		text += fmt.Sprintf("(%d lines about other keys are left out)\n", left)
	}
	if rest := undisturbed[same:]; len(rest) > 0 {
		text += fmt.Sprintf("\nundisturbed, from where the stories part:\n%s", cut(rest, 20, 10))
	}
	return text
}

// concerning takes the lines about other keys out of two stories, and returns how many there were in the
// first. Differing are the lines in which the outcomes differ. What concerns one of them: the calls for keys
// that are in it or that say its words, and what the stories say about these keys.
func concerning(here, undisturbed []told, differing []string) (_, _ []told, left int) {
	both := slices.Concat(here, undisturbed)
	words, calls := make(map[string]bool), make(map[string]bool)
	for _, line := range differing {
		label, _, _ := strings.Cut(line, " = ")
		if strings.Contains(label, "/") && !strings.Contains(label, " ") {
			words[label] = true // The label of an object.
		}
	}
	for _, line := range both {
		base := line.call[strings.LastIndex(line.call, "/")+1:]
		for _, text := range differing {
			if line.call != "" && (hasWord(text, line.call) || hasWord(text, base)) {
				calls[line.call], words[base] = true, true
			}
		}
	}
	if len(words) == 0 {
		return here, undisturbed, 0
	}
	saysOne := func(text string) bool {
		for word := range words {
			if hasWord(text, word) {
				return true
			}
		}
		return false
	}
	for _, line := range both {
		if line.call != "" && saysOne(line.text) {
			calls[line.call] = true
		}
	}
	for call := range calls {
		words[call[strings.LastIndex(call, "/")+1:]] = true
	}
	other := func(line told) bool {
		aboutProcess := strings.HasSuffix(line.text, ": starts") || strings.Contains(line.text, " crashes ") ||
			strings.Contains(line.text, ": loses its watch of ")
		return !aboutProcess && !calls[line.call] && !saysOne(line.text)
	}
	kept := slices.DeleteFunc(slices.Clone(here), other)
	return kept, slices.DeleteFunc(slices.Clone(undisturbed), other), len(here) - len(kept)
}

// hasWord reports whether word stands in text, and not as a part of another word.
func hasWord(text, word string) bool {
	part := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_' }
	for rest, before := text, ""; word != ""; {
		i := strings.Index(rest, word)
		if i < 0 {
			break
		}
		before, rest = before+rest[:i], rest[i+len(word):]
		runes := []rune(before)
		if (len(runes) == 0 || !part(runes[len(runes)-1])) && (rest == "" || !part([]rune(rest)[0])) {
			return true
		}
		before += word
	}
	return false
}

// same reports whether two outcomes are equal. Values whose texts are the same are, such as an empty slice
// and nil.
func same(a, b any) bool {
	x, ok1 := a.(objects)
	y, ok2 := b.(objects)
	if !ok1 || !ok2 {
		return reflect.DeepEqual(a, b)
	}
	return maps.EqualFunc(x, y, func(v, w any) bool { return reflect.DeepEqual(v, w) || plain(v) == plain(w) })
}

func plain(pointer any) string { return fmt.Sprintf("%+v", reflect.ValueOf(pointer).Elem()) }

// text returns the text of the value that pointer points to, without addresses.
func text(pointer any) string {
	text := plain(pointer)
	if strings.Contains(text, "0x") {
		if data, err := json.Marshal(pointer); err == nil {
			return string(data)
		}
	}
	return text
}

// outcomeDiffers describes how two outcomes differ: of texts, maps and the default measure, only the lines
// that do.
func outcomeDiffers(want, got any) *failure {
	f := &failure{kind: outcome}
	w, ok1 := lines(want)
	g, ok2 := lines(got)
	if !ok1 || !ok2 || slices.Equal(w, g) {
		f.text = fmt.Sprintf("the outcome differs from that of the undisturbed run:\n\tundisturbed: %+v\n"+
			"\there:        %+v", want, got)
		return f
	}
	f.text = "the outcome differs from that of the undisturbed run:"
	only := func(what string, a, b []string) {
		for _, line := range a {
			if line != "" && !slices.Contains(b, line) {
				f.text += fmt.Sprintf("\n\t%-8s %s", what, line)
				f.lines = append(f.lines, line)
			}
		}
	}
	only("missing:", w, g)
	only("extra:", g, w)
	return f
}

// lines returns an outcome as lines of text, if it has several.
func lines(outcome any) (lines []string, ok bool) {
	switch v := outcome.(type) {
	case string:
		return strings.Split(v, "\n"), true
	case objects:
		for _, label := range slices.Sorted(maps.Keys(v)) {
			lines = append(lines, label+" = "+text(v[label]))
		}
		return lines, true
	}
	v := reflect.ValueOf(outcome)
	if v.Kind() != reflect.Map {
		return nil, false
	}
	for key, value := range v.Seq2() {
		lines = append(lines, fmt.Sprintf("%v = %+v", key, value))
	}
	slices.Sort(lines)
	return lines, true
}
