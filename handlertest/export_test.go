package handlertest

import (
	"fmt"
	"testing"
)

// FindNamed is Find in a test with that name. It returns also what is logged.
func FindNamed[K comparable](t *testing.T, name string, scenario func(s *Scenario[K])) (report, log string) {
	report = find(t, name, func(format string, args ...any) { log += fmt.Sprintf(format, args...) }, scenario)
	return report, log
}
