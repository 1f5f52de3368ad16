package handlertest

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// failure is what is wrong with a run. Shrinking keeps its kind.
type failure struct {
	kind, text string
	lines      []string // how an outcome differs; each may be known
}

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

// describe returns the failure, the story of the run and the line that repeats it, with the origin of its
// schedule: a shell takes what follows # for a comment.
func (s *search) describe(fixed schedule, failed *failure, origin string) string {
	res, note := s.under(newDecider(fixed, 0), true), ""
	if res.failed != nil {
		failed = res.failed
	} else {
		note = "\nIt did not fail again when it was run for its story: the handler depends on something random."
	}
	line := fmt.Sprintf("repeat: %s='%v'%s", scheduleVariable, fixed, s.repeat)
	if len(fixed) == 0 {
		line = "Now and then it also fails without a disturbance."
	} else if origin != "" {
		line += "  # " + origin
	}
	story := storyOf(res.story)
	if failed.kind == "outcome" {
		story = storiesOf(res.story, s.undisturbed.story, failed.lines)
	}
	return fmt.Sprintf("handlertest: %s%s\n\n%s\n%s", failed.text, note, story, line)
}

// objects are the values of all objects by their labels, as pointers: the default measure.
type objects map[string]any

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
	if strings.Contains(plain(pointer), "0x") {
		if data, err := json.Marshal(pointer); err == nil {
			return string(data)
		}
	}
	return plain(pointer)
}

// outcomeDiffers describes how two outcomes differ: of texts, maps and the default measure, only the lines
// that do.
func outcomeDiffers(want, got any) *failure {
	f := &failure{kind: "outcome"}
	w, ok1 := linesOf(want)
	g, ok2 := linesOf(got)
	f.text = "the outcome differs from that of the undisturbed run:"
	only := func(what string, a, b []string) {
		for _, line := range a {
			if line != "" && !slices.Contains(b, line) {
				f.text += fmt.Sprintf("\n\t%-8s %s", what, shortened(line, b))
				f.lines = append(f.lines, line)
			}
		}
	}
	if ok1 && ok2 {
		only("missing:", w, g)
		only("extra:", g, w)
	}
	if f.lines == nil { // The order of the lines may differ, or how often one stands there.
		f.text += fmt.Sprintf("\n\tundisturbed: %+v\n\there:        %+v", want, got)
	}
	return f
}

// shortened returns a long line without what it has in common with the line for the same object in others,
// but for some of it around.
func shortened(line string, others []string) string {
	const long, around = 200, 60
	label, _, _ := strings.Cut(line, " = ")
	i := slices.IndexFunc(others, func(other string) bool { return strings.HasPrefix(other, label+" = ") })
	if i < 0 || len(line) < long {
		return line
	}
	other, from, to := others[i], 0, 0 // so many bytes are the same at the beginning and at the end
	for from < min(len(line), len(other)) && line[from] == other[from] {
		from++
	}
	for to < min(len(line), len(other))-from && line[len(line)-1-to] == other[len(other)-1-to] {
		to++
	}
	from, to = from-around, len(line)-to+around
	head, tail := label+" = …", "…"
	if from <= len(head) {
		head, from = "", 0
	}
	if to >= len(line) {
		tail, to = "", len(line)
	}
	return strings.ToValidUTF8(head+line[from:to]+tail, "")
}

// linesOf returns an outcome as lines of text, if it has several.
func linesOf(outcome any) (lines []string, ok bool) {
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
