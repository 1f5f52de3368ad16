package workqueuetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/operate"
)

// failures has what a test fails with.
type failures struct {
	testing.TB
	all []string
}

func (f *failures) Helper() {}

func (f *failures) Errorf(format string, args ...any) {
	f.all = append(f.all, fmt.Sprintf(format, args...))
}

// A wrapper must have each interface that its inner queue has, and no other.
func TestWraps(t *testing.T) {
	type (
		extended  = struct{ workqueue.Extended[int] }
		plainOnly = struct{ workqueue.TypedInterface[int] }
		operable  = struct {
			workqueue.Extended[int]
			operate.Operable[int]
		}
		leaser = struct {
			workqueue.Extended[int]
			leasing.Leaser[int]
		}
		answerer = struct {
			workqueue.Extended[int]
			leasing.Answerer[int]
		}
		limiting = struct {
			workqueue.TypedRateLimitingInterface[int]
		}
	)
	for _, c := range []struct {
		wrapper, inner workqueue.TypedInterface[int]
		want           string // what a failure says
	}{
		{extended{}, extended{}, ""},
		{answerer{}, answerer{}, ""},
		{answerer{}, leaser{}, ""},
		{leaser{}, answerer{}, "is no leasing.Answerer[int], and"},
		{extended{}, leaser{}, "is no leasing.Leaser[int], and"},
		{extended{}, operable{}, "is no operate.Operable[int], and"},
		{plainOnly{}, plainOnly{}, "is no workqueue.Extended"},
		{limiting{}, plainOnly{}, "has a limiter and is no workqueue.ExtendedRateLimiting"},
	} {
		var f failures
		Wraps(&f, c.wrapper, c.inner)
		if got := strings.Join(f.all, "\n"); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%T over %T: %q, want %q", c.wrapper, c.inner, got, c.want)
		}
	}
}
