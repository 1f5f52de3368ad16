package debug

import (
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/worker"
)

// models has a function for each page that returns a model without anything in it.
var models = map[string]func() any{
	"list": func() any { return &listPage{} },
	"queue": func() any {
		p := &queuePage{Queue: &reading{entry: &entry{}}, Sections: make(map[string]section)}
		for _, s := range stateSections {
			p.Sections[s.State] = section{stateSection: s}
		}
		return p
	},
	"keys": func() any {
		return &keysPage{Section: section{stateSection: stateSections[0]}, Queue: &reading{entry: &entry{}}}
	},
	"key":  func() any { return &keyPage{Queue: &reading{entry: &entry{}}} },
	"gone": func() any { return &page{} },
}

// fill sets what can be set in v, and adds to fields a function for each field that empties it again.
func fill(v reflect.Value, path string, fields map[string]func()) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		if r, ok := v.Interface().(*reading); ok && r.entry == nil {
			r.entry = &entry{}
		}
		fill(v.Elem(), path, fields)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(1, 0)))
			return
		}
		for i := range v.NumField() {
			f := v.Field(i)
			isParts := v.Type().Field(i).Anonymous && f.Kind() == reflect.Struct
			if !f.CanSet() && !isParts || f.Type() == reflect.TypeFor[*worker.Stats]() && strings.Count(path, ".") > 2 {
				continue
			}
			name := path + "." + v.Type().Field(i).Name
			fill(f, name, fields)
			if f.CanSet() && f.Type() != reflect.TypeFor[*reading]() { // Every page of a queue has it.
				fields[name] = func() { f.SetZero() }
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), path+"[0]", fields)
		fill(v.Index(1), path+"[1]", fields)
	case reflect.String:
		v.SetString("a text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(3)
	case reflect.Uint64:
		v.SetUint(3)
	case reflect.Float64:
		v.SetFloat(3)
	}
}

// Each page can be made from a model with nothing in it, and from one in which a single field is missing.
func TestPagesWithMissingFields(t *testing.T) {
	render := func(page, missing string, model any) {
		if err := pages[page].ExecuteTemplate(io.Discard, "layout", model); err != nil {
			t.Errorf("%s without %s: %v", page, missing, err)
		}
	}
	if len(models) != len(pages) {
		t.Errorf("%d models for %d pages", len(models), len(pages))
	}
	for page, empty := range models {
		render(page, "anything", empty())
		full, fields := empty(), make(map[string]func())
		fill(reflect.ValueOf(full).Elem(), "", fields)
		render(page, "nothing", full)
		for name := range fields {
			full, fields := empty(), make(map[string]func())
			fill(reflect.ValueOf(full).Elem(), "", fields)
			fields[name]()
			render(page, name, full)
		}
	}
}

func TestTemplatesHaveShortLines(t *testing.T) {
	files, err := templateFiles.ReadDir("templates")
	if err != nil || len(files) < len(pages) {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, f := range files {
		text, _ := templateFiles.ReadFile("templates/" + f.Name())
		lines := strings.Split(string(text), "\n")
		if i := slices.IndexFunc(lines, func(l string) bool { return len([]rune(l)) > 110 }); i >= 0 {
			t.Errorf("%s:%d has more than 110 columns", f.Name(), i+1)
		}
	}
}
