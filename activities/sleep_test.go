package activities_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// functionsAllowedToWait lists the functions of a worker that may wait for something other than an answer. The value of
// an entry is the reason for the wait. All other functions use a workflow timer or the delay of a retry, because
// neither occupies a slot.
var functionsAllowedToWait = map[string]string{
	"activities/drain.awaitChange":                 "evictions wait for pods and budgets, on the queue of the drains",
	"activities/drain.applyEvents":                 "takes what has arrived, and never waits",
	"activities/drain.AwaitDetach":                 "waits for the volumes of a node, on the queue of the drains",
	"activities/drain.sendActions":                 "so many evictions are sent at a time; each has an answer",
	"activities/kube.Lock":                         "one eviction of a budget after the other; each has an answer",
	"activities/kube.StartHeartbeats":              "heartbeats, beside the call",
	"activities/kube.WriteInParallel":              "so many writes at a time; each has an answer",
	"activities/cloud.listMachines":                "gives a turn back, and never waits",
	"activities/cloud.readClaims":                  "waits for a list of the Machines that other calls wait for, too",
	"observe/cache.AwaitVersions":                  "for a cache that is behind, for 2 s at most",
	"observe/cache.AwaitRestore":                   "for the end of the process, beside its workers",
	"observe/cache.notifyOwnershipChange":          "never blocks",
	"observe/cache.reportRestore":                  "tells of a restore, and never waits",
	"observe/cache.NoEvictionReason":               "for the answer to the question of another drain, for a second at most",
	"observe/drain.SubscribeToChanges":             "tells that something has changed, and never waits",
	"provider/driver.waitForNextSearch":            "searches again until the request of a killed worker would show, within the call",
	"provider/driver.createOnce":                   "waits for a creation of the same machine that is under way in this process",
	"provider/mcmdriver.callDriverWithWaitContext": "waits for the answer of a driver, or for the end of the call",
	"worker.retryUntilDone":                        "the start of the process",
	"observe/target.awaitCurrentNodes":             "the connection of a target, in a goroutine of its own",
	"observe/target.awaitOutage":                   "the connection of a target, in a goroutine of its own",
	"observe/target.serveConnection":               "the connection of a target, in a goroutine of its own",
	"observe/target.reconnect":                     "the connection of a target, in a goroutine of its own",
	"observe/target.run":                           "the connection of a target, in a goroutine of its own",
	"observe/target.allowRequests":                 "reports that the target is up, and never waits",
	"observe/target.recordResult":                  "reports an outage, and never waits",
	"observe/target.setSource":                     "reports a changed Secret, and never waits",
	"worker.notifyChange":                          "reports the state of a target, and never waits",
	"worker.run":                                   "the reports about targets, in a goroutine of the process",
	"worker.sleepUnlessDone":                       "the reports about targets, in a goroutine of the process",
	"worker.claimAndServeShards":                   "the claims of shards, in the main goroutine of the process",
	"worker.serveShard":                            "a shard, in a goroutine of the process",
	"worker/serve.StopWorkers":                     "the end of a shard or of the process",
	"worker.keepRenewingLease":                     "the presence of the process, beside its workers",
	"worker/serve.StoreFirstError":                 "tells a fatal error, and never waits",
	"worker/serve.WaitAndStopWorkers":              "the end of the process",
}

// An activity that waits occupies a slot that other activities need. No function of a worker sleeps, and each function
// that waits is listed in functionsAllowedToWait.
func TestWorkerCodeDoesNotSleep(t *testing.T) {
	seen := map[string]bool{}
	for _, room := range []string{"activities", "decide", "observe", "workflows", "worker", "provider/driver", "provider/virtual", "provider/mcmdriver"} {
		root := filepath.Join("..", filepath.FromSlash(room))
		require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() && strings.HasSuffix(path, "test") {
				return filepath.SkipDir // test helpers
			}
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			for _, declared := range file.Decls {
				function, isFunction := declared.(*ast.FuncDecl)
				if !isFunction {
					continue
				}
				name := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../") + "." + function.Name.Name
				ast.Inspect(function, func(node ast.Node) bool {
					if what := waitKind(node); what != "" {
						seen[name] = true
						assert.NotEqual(t, "Sleep", what, "%s in %s", name, path)
					}
					return true
				})
			}
			return nil
		}))
	}
	assert.Equal(
		t,
		slices.Sorted(maps.Keys(functionsAllowedToWait)),
		slices.Sorted(maps.Keys(seen)),
		"say why a function may wait, or use a timer",
	)
}

// waitKind returns how a part of a function waits. waitKind returns "" if the part does not wait.
func waitKind(node ast.Node) string {
	switch n := node.(type) {
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			return "a receive"
		}
	case *ast.SendStmt:
		return "a send"
	case *ast.CallExpr:
		function, isSelector := n.Fun.(*ast.SelectorExpr)
		if !isSelector {
			return ""
		}
		of, _ := function.X.(*ast.Ident)
		switch name := function.Sel.Name; {
		case name == "Sleep", name == "Wait" && len(n.Args) == 0, strings.HasPrefix(name, "PollUntil"):
			return name
		case of != nil && of.Name == "time" && slices.Contains([]string{"After", "NewTimer", "NewTicker", "Tick"}, name):
			return "time." + name
		}
	}
	return ""
}
