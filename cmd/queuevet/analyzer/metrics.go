package analyzer

import (
	"cmp"

	"golang.org/x/tools/go/analysis"
)

// Metrics reports programs that have one of our queues under a name, and whose metrics are client-go's alone.
var Metrics = &analysis.Analyzer{
	Name: "queuemetrics",
	Doc: `report queues whose metrics no registry will have

A queue of this project with a name reports its metrics to this project's provider. A program that sets only
client-go's provider, which component-base and controller-runtime do when they are imported, will not show them.`,
	URL:      url + "#queuemetrics",
	Run:      runMetrics,
	Requires: []*analysis.Analyzer{facts},
}

func runMetrics(pass *analysis.Pass) (any, error) {
	k := pass.ResultOf[facts].(*knowledge)
	p := k.program
	if pass.Pkg.Name() != "main" || p.Ours || p.Named == "" || p.ClientGo == "" || len(pass.Files) == 0 {
		return nil, nil
	}
	pos := cmp.Or(k.named, pass.Files[0].Name.Pos())
	newReporter(pass).reportf(pos, "metrics of the queues that %s makes are not registered: "+
		"%s sets client-go's provider alone; call workqueue.SetProvider of %s, too", p.Named, p.ClientGo, oursPath)
	return nil, nil
}
