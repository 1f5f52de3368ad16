// Command typecheck reports what does not compile for GOOS and GOARCH, in packages, their tests, and all that
// they import. It reads sources, and generates no code: for Kubernetes' client that takes a tenth of the
// time.
//
//	GOOS=windows GOARCH=386 typecheck ./...
package main

import (
	"flag"
	"fmt"
	"os"

	"golang.org/x/tools/go/packages"
)

func main() {
	tests := flag.Bool("tests", true, "also check the tests of the packages")
	flag.Parse()
	const need = packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles |
		packages.NeedImports | packages.NeedDeps | packages.NeedTypes | packages.NeedTypesSizes |
		packages.NeedSyntax | packages.NeedTypesInfo
	found, err := packages.Load(&packages.Config{Mode: need, Tests: *tests}, flag.Args()...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if packages.PrintErrors(found) > 0 || len(found) == 0 {
		os.Exit(1)
	}
}
