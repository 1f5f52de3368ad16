package handlertest

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// What repeats is told once, and how often it does.
func TestFolded(t *testing.T) {
	var lines []told
	add := func(key, text string) { lines = append(lines, told{time.Duration(len(lines)), key, text}) }
	add("", "the process: starts")
	for i := range 6000 {
		add("a", "a: the handler begins")
		add("a", fmt.Sprintf("a: updates apps/a@%d", i))
		add("", fmt.Sprintf("the process: its cache shows apps/a@%d", i+1))
	}
	add("", "the end")
	story := storyOf(lines)
	if n := strings.Count(story, "\n"); n != 6 || !strings.Contains(story, "the last 3 lines again and again, 5999 times more") ||
		!strings.Contains(story, "the end") {
		t.Errorf("the story has %d lines:\n%s", n, story)
	}
}

// A measure's text that looks like the label of an object stays text if the story does not know it.
func TestStoryOfUnknownLabel(t *testing.T) {
	here := []told{{0, "", "the process: starts"}, {1, "web", "web: the handler begins"}}
	text := storiesOf(here, nil, []string{"registry.example.com/app:v2 = 1", "quay.io/x"})
	if !strings.Contains(text, "web: the handler begins") || strings.Contains(text, "left out") {
		t.Errorf("the story is %q", text)
	}
}

// Of two long lines for one object, only what differs is shown.
func TestLongLinesDiffer(t *testing.T) {
	long := strings.Repeat("x", 500)
	f := outcomeDiffers(map[string]string{"d/a": long + "replicas: 2" + long},
		map[string]string{"d/a": long + "replicas: 3" + long})
	for _, words := range []string{"missing: d/a = …xxx", "replicas: 2xxx", "extra:   d/a = …xxx", "replicas: 3xxx"} {
		if !strings.Contains(f.text, words) {
			t.Errorf("it does not say %q:\n%s", words, f.text)
		}
	}
	if len(f.text) > 600 || len(f.lines) != 2 || len(f.lines[0]) < 1000 {
		t.Errorf("%d bytes, and %d lines to accept:\n%s", len(f.text), len(f.lines), f.text)
	}
	f = outcomeDiffers(map[string]string{"d/a": long}, map[string]string{"d/a": long + long})
	if strings.Count(f.text, "x") > 4*60+1500 || !strings.Contains(f.text, "missing") {
		t.Errorf("one is the beginning of the other:\n%s", f.text)
	}
	if f = outcomeDiffers("a\nb", "b\na"); !strings.Contains(f.text, "here:        b\na") {
		t.Errorf("the order of the lines differs: %s", f.text)
	}
}
