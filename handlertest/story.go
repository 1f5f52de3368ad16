package handlertest

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A story is what has happened in a run, line by line: a run that fails is played again to record it.

// told is a line of a story.
type told struct {
	at   time.Duration
	call string // the key that the line is about, or ""
	text string
}

func (t told) String() string { return fmt.Sprintf("%9v  %s", t.at, t.text) }

// textOf returns the text of a key, for the story and the order of events. A struct that embeds a type with a
// method String also has that method, which leaves out the fields beside: their texts follow.
func textOf(key any) string {
	if _, ok := key.(fmt.Stringer); ok {
		v := reflect.ValueOf(key)
		for i := 0; v.Kind() == reflect.Struct && i < v.NumField(); i++ {
			if f := v.Type().Field(i); f.Anonymous && f.Type.Implements(reflect.TypeFor[fmt.Stringer]()) {
				var fields []string
				for i := range v.NumField() {
					fields = append(fields, fmt.Sprint(v.Field(i)))
				}
				return strings.Join(fields, " ")
			}
		}
	}
	return fmt.Sprint(key)
}

// tell adds a line to the story. The call is the key whose call the line is about, or "".
func (s *sim) tell(call, format string, args ...any) {
	if !s.telling {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.story = append(s.story, told{time.Since(s.began).Round(time.Microsecond), call,
		fmt.Sprintf(format, args...)})
}

// tellSoonLocked adds a line after all that happens at this moment. Lines of one moment are ordered by label:
// goroutines that run at the same time may get here in any order.
func (s *sim) tellSoonLocked(p *Process, call, label, format string, args ...any) {
	if s.telling {
		s.addLocked(time.Now(), label, p, func() { s.tell(call, format, args...) })
	}
}

// storyOf returns the lines of a story; the first and the last ones of a long one.
func storyOf(lines []told) string { return cut(folded(lines), 60, 20) }

var versionsInText = regexp.MustCompile(`@\d+`)

// folded replaces lines that repeat, but for times and versions, by a line that says how often.
func folded(lines []told) (short []told) {
	const longest = 30 // lines that repeat together
	texts := make([]string, len(lines))
	for i, line := range lines {
		texts[i] = versionsInText.ReplaceAllString(line.text, "@")
	}
	for i := 0; i < len(lines); {
		n, times := 1, 1 // the lines from i on, n of them, stand there that often
		for period := 1; period <= longest && times < 4; period++ {
			n, times = period, 1
			for next := i + period; next+period <= len(lines) &&
				slices.Equal(texts[i:i+period], texts[next:next+period]); next += period {
				times++
			}
		}
		if times < 4 {
			short = append(short, lines[i])
			i++
			continue
		}
		short = append(short, lines[i:i+n]...)
		end := i + n*times
		short = append(short, told{at: lines[end-1].at, text: fmt.Sprintf("... the last %d lines again and again, "+
			"%d times more ...", n, times-1)})
		i = end
	}
	return short
}

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
	words, calls := make(map[string]bool), make(map[string]bool)
	for _, line := range differing {
		label, _, found := strings.Cut(line, " = ")
		if found && strings.Contains(label, "/") && !strings.Contains(label, " ") {
			words[label] = true // The label of an object.
		}
	}
	both := slices.Concat(here, undisturbed)
	for _, line := range both {
		if _, asked := calls[line.call]; asked || line.call == "" {
			continue
		}
		names := map[string]bool{line.call: true, nameOf(line.call): true}
		if calls[line.call] = slices.ContainsFunc(differing, anyOf(names).MatchString); calls[line.call] {
			words[nameOf(line.call)] = true
		}
	}
	if len(words) == 0 {
		return here, undisturbed, 0
	}
	said := anyOf(words)
	for _, line := range both {
		if line.call != "" && said.MatchString(line.text) {
			calls[line.call], words[nameOf(line.call)] = true, true
		}
	}
	said = anyOf(words)
	aboutIt := func(line told) bool { return calls[line.call] || said.MatchString(line.text) }
	other := func(line told) bool {
		aboutProcess := strings.HasSuffix(line.text, ": starts") || strings.Contains(line.text, " crashes ") ||
			strings.Contains(line.text, ": loses its watch of ")
		return !aboutProcess && !aboutIt(line)
	}
	kept := slices.DeleteFunc(slices.Clone(here), other)
	if !slices.ContainsFunc(kept, aboutIt) {
		return here, undisturbed, 0 // The measure names nothing of the story.
	}
	return kept, slices.DeleteFunc(slices.Clone(undisturbed), other), len(here) - len(kept)
}

// nameOf returns a key without its namespace.
func nameOf(key string) string { return key[strings.LastIndex(key, "/")+1:] }

// anyOf finds one of words in a text, where it is not a part of another word.
func anyOf(words map[string]bool) *regexp.Regexp {
	var quoted []string
	for word := range words {
		quoted = append(quoted, regexp.QuoteMeta(word))
	}
	const part = `\pL\pN_-`
	return regexp.MustCompile(`(^|[^` + part + `])(` + strings.Join(quoted, "|") + `)($|[^` + part + `])`)
}
