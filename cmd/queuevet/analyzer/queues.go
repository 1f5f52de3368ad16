package analyzer

import (
	"go/ast"
	"go/types"
	"slices"

	"golang.org/x/tools/go/types/typeutil"
)

const (
	clientGoPath = "k8s.io/client-go/util/workqueue"
	crPath       = "sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	oursPath     = "github.com/keyedqueue/workqueue"
)

// isOurs reports whether path is a package that has queues of this project.
func isOurs(path string) bool {
	switch path {
	case oursPath, oursPath + "/priorityqueue", oursPath + "/redisqueue", oursPath + "/controllerruntime":
		return true
	}
	return false
}

func isQueuePackage(path string) bool { return path == clientGoPath || path == crPath || isOurs(path) }

// inQueuePackage reports whether obj is declared in a package that has queues.
func inQueuePackage(obj types.Object) bool {
	return obj != nil && obj.Pkg() != nil && isQueuePackage(obj.Pkg().Path())
}

// isMethod reports whether f is a method of a queue with one of these names.
func isMethod(f *types.Func, names ...string) bool {
	return f != nil && inQueuePackage(f) && f.Signature().Recv() != nil && slices.Contains(names, f.Name())
}

// isDone reports whether f finishes a key. Any method Done with one parameter may stand for a queue's.
func isDone(f *types.Func) bool {
	return f != nil && f.Signature().Recv() != nil && f.Signature().Params().Len() == 1 && f.Name() == "Done"
}

// callee returns the function or method that call names, or nil: a function value can be anything.
func callee(info *types.Info, call *ast.CallExpr) *types.Func {
	f, _ := typeutil.Callee(info, call).(*types.Func)
	if f == nil {
		return nil
	}
	return f.Origin()
}

// isQueue reports whether t is a queue, or embeds one.
func isQueue(t types.Type) bool {
	if t == nil {
		return false
	}
	done, _, _ := types.LookupFieldOrMethod(t, true, nil, "Done")
	return inQueuePackage(done)
}
