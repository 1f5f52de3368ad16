package handlertest_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/keyedqueue/workqueue/handlertest"
)

// wrongHandler is a mistake. Its scenario has a handler with the mistake and, if right is set, one without
// it.
type wrongHandler struct {
	name        string
	scenario    func(s scenario, right bool)
	words       []string // that must be in the report
	undisturbed bool     // the undisturbed run shows it
}

func TestWrongHandlers(t *testing.T) {
	t.Setenv("HANDLERTEST_RUNS", "") // The default finds them.
	for _, c := range slices.Concat(wrongHandlers, wrongCalls) {
		t.Run(c.name, func(t *testing.T) {
			found := handlertest.Find(t, func(s scenario) { c.scenario(s, false) })
			if found == "" {
				t.Fatal("not found")
			}
			t.Log(found)
			if undisturbed := strings.Contains(found,
				"the scenario fails undisturbed"); undisturbed != c.undisturbed {
				t.Errorf("found in the undisturbed run: %v", undisturbed)
			}
			wantReport(t, found, c.words...)
		})
	}
}

// None of the right handlers is accused. For many more runs:
//
//	HANDLERTEST_RUNS=100000 go test -run '^TestRightHandlers$' -timeout 2h ./handlertest
func TestRightHandlers(t *testing.T) {
	if os.Getenv("HANDLERTEST_RUNS") == "" {
		t.Setenv("HANDLERTEST_RUNS", "300")
	}
	for _, c := range slices.Concat(wrongHandlers, wrongCalls) {
		t.Run(c.name, func(t *testing.T) {
			handlertest.Converges(t, func(s scenario) { c.scenario(s, true) })
		})
	}
}
