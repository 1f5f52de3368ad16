package handlertest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A story is what has happened in a run, line by line: a run that fails is played again to record it.

// told is a line of a story.
type told struct {
	at   time.Duration
	key  string // whose call the line is about, or ""
	text string
}

func (t told) String() string { return fmt.Sprintf("%9v  %s", t.at, t.text) }

// textOf returns the text of a key, for the story and the order of events.
func textOf(key any) string { return fmt.Sprint(key) }

// tell adds a line to the story. The key is the one whose call the line is about, or "".
func (s *sim) tell(key, format string, args ...any) {
	if !s.telling {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.story = append(s.story, told{time.Since(s.began).Round(time.Microsecond), key,
		fmt.Sprintf(format, args...)})
}

// tellSoonLocked adds a line after all that happens at this moment. Lines of one moment are ordered by label:
// goroutines that run at the same time may get here in any order.
func (s *sim) tellSoonLocked(p *Process, key, label, format string, args ...any) {
	if s.telling {
		s.addLocked(time.Now(), label, p, func() { s.tell(key, format, args...) })
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
		what := "line"
		if n > 1 {
			what = fmt.Sprint(n, " lines")
		}
		end := i + n*times
		short = append(short, told{at: lines[end-1].at, text: fmt.Sprintf("... the last %s again and again, "+
			"%d times more ...", what, times-1)})
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
		text += fmt.Sprintf("\nundisturbed, from where the stories part:\n%s", cut(folded(rest), 20, 10))
	}
	return text
}

// concerning takes the calls for other keys out of two stories, and returns how many lines these were in the
// first. A call concerns one of the lines in which the outcomes differ if its key stands there, or if it says
// the label of the object that the line is about.
func concerning(here, undisturbed []told, differing []string) (_, _ []told, left int) {
	var labels []*regexp.Regexp
	for _, d := range differing {
		label, _, _ := strings.Cut(d, " = ")
		labels = append(labels, word(label))
	}
	concerns := make(map[string]bool) // by keys
	for _, line := range slices.Concat(here, undisturbed) {
		if _, seen := concerns[line.key]; !seen && line.key != "" {
			name := word(line.key[strings.LastIndex(line.key, "/")+1:]) // without the namespace
			concerns[line.key] = slices.ContainsFunc(differing, name.MatchString)
		}
		if line.key != "" && !concerns[line.key] {
			concerns[line.key] = slices.ContainsFunc(labels, func(label *regexp.Regexp) bool {
				return label.MatchString(line.text)
			})
		}
	}
	if !slices.Contains(slices.Collect(maps.Values(concerns)), true) {
		return here, undisturbed, 0 // The measure names nothing of the story.
	}
	other := func(line told) bool { return line.key != "" && !concerns[line.key] }
	kept := slices.DeleteFunc(slices.Clone(here), other)
	return kept, slices.DeleteFunc(slices.Clone(undisturbed), other), len(here) - len(kept)
}

// word matches texts that have a word, which may be any text, between others.
func word(text string) *regexp.Regexp {
	return regexp.MustCompile(`(^|[^\pL\pN])` + regexp.QuoteMeta(text) + `($|[^\pL\pN])`)
}
