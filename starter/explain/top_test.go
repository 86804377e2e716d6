package explain

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"millwright/process/problems"
	"millwright/starter/clitest"
)

// If worker and bridge are down, the statuses are out of date, so top must not report that there is no work in
// progress.
func TestTopReportsHeartbeats(t *testing.T) {
	const worker, bridge = "millwright-worker", "millwright-bridge"
	for name, row := range map[string]struct {
		leases []runtime.Object
		args   []string
		says   string
		fails  string
	}{
		"both are at work": {[]runtime.Object{newLease(worker, 20*time.Second), newLease(bridge, 20*time.Second)}, []string{"-n", "bar"}, "nothing is in motion in namespace bar; 3 objects in other namespaces: `millwright top -A`\n", ""},
		"a heartbeat is overdue": {
			[]runtime.Object{newLease(worker, 21*time.Second), newLease(bridge, time.Second)},
			[]string{"-n", "bar"},
			"nothing is in motion in namespace bar; 3 objects in other namespaces: `millwright top -A`; the worker may be down: its last heartbeat was at 14:05:46 UTC, and one is due each 15s\n", "",
		},
		"no worker": {
			[]runtime.Object{newLease(worker, 15*time.Minute), newLease(bridge, time.Second)},
			[]string{"-n", "bar"},
			"no status says that something is in motion; no worker is at work since 13:51:07 UTC\n",
			"what is in motion now is not known: No worker has been at work since 13:51:07 UTC (15m): nothing moves until one reaches Temporal and the API server. `millwright doctor` says what to do",
		},
		"no bridge, and objects that were in motion": {
			[]runtime.Object{newLease(worker, time.Second)},
			[]string{"-n", "shop", "--blocked"},
			"1 pool in motion, 1 of them blocked; 1 object changed, and no status says that Millwright has seen it; no bridge is at work\n\n" +
				"BLOCKED  no quota or capacity\n" +
				"  shop/web   1 of 3 machines   for 15m   until a person acts\n" +
				"    no room (since …)\n",
			"what is in motion now is not known: No bridge has ever been at work: no Lease millwright-bridge was ever renewed. `millwright doctor` says what to do",
		},
		"for a program": {
			nil,
			[]string{"-n", "bar", "-o", "json"},
			"{\n  \"items\": []\n}\n",
			"what is in motion now is not known: No worker has ever been at work: no Lease millwright-worker was ever renewed. " +
				"No bridge has ever been at work: no Lease millwright-bridge was ever renewed. `millwright doctor` says what to do",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := clitest.NewFakeBackend(newPoolObjects()...)
			w.ClusterClient = kubefake.NewClientset(row.leases...)
			out, err := w.Run(t.Context(), TopCommand(w.Environment()), row.args...)
			assert.Equal(t, row.says, out)
			if row.fails == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, row.fails)
		})
	}
	t.Run("a worker may not do all of its work", func(t *testing.T) {
		w := clitest.NewFakeBackend(newPoolObjects()...)
		refused := problems.Problem{
			System:       problems.ControlCluster,
			Resource:     "machines.machine.sapcloud.io",
			Verb:         "watch",
			Kind:         problems.Refused,
			Message:      "User w cannot list",
			FirstFailure: clitest.LastChangeTime,
		}
		w.ClusterClient = kubefake.NewClientset(
			newLeaseWithProblems(t, problems.Report{Identity: "w-1", Problems: []problems.Problem{refused, refused}}),
			newLease(bridge, time.Second),
		)
		const line = "worker w-1, since 13:51:07 UTC: the worker may not watch machines.machine.sapcloud.io: User w cannot list; " +
			"and 1 other problem; `millwright doctor` says what to do"
		out, err := w.Run(t.Context(), TopCommand(w.Environment()), "-n", "bar")
		assert.Equal(t, line+"\nno status says that something is in motion; worker w-1 has 2 problems\n", out)
		require.EqualError(t, err, "what is in motion now is not known for certain: "+line)
		out, err = w.Run(t.Context(), TopCommand(w.Environment()), "-n", "bar", "-o", "json")
		assert.JSONEq(t, `{"items":[]}`, out)
		require.Error(t, err)
	})
	t.Run("nobody may read Leases", func(t *testing.T) {
		w := clitest.NewFakeBackend()
		kube := kubefake.NewClientset()
		kube.PrependReactor(
			"list",
			"leases",
			func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("forbidden") },
		)
		w.ClusterClient = kube
		out, err := w.Run(t.Context(), TopCommand(w.Environment()))
		require.NoError(t, err)
		assert.Equal(
			t,
			"nothing is in motion in namespace default; whether a worker is at work is not known: read Lease millwright-worker: forbidden; "+
				"whether a bridge is at work is not known: read Lease millwright-bridge: forbidden\n",
			out,
		)
	})
	t.Run("a watch goes on, and says it once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := clitest.NewFakeBackend(newPoolObjects()...)
			w.ClusterClient = kubefake.NewClientset(newLease(worker, 15*time.Minute), newLease(bridge, time.Second))
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			out, err := w.Run(ctx, TopCommand(w.Environment()), "-n", "bar", "--watch", "--interval", "10ms")
			require.NoError(t, err)
			assert.Equal(
				t,
				"14:06:07 UTC  no status says that something is in motion; no worker is at work since 13:51:07 UTC\n",
				out,
			)
		})
	})
}

// Each name that `top -o name` prints is a valid argument of explain without --namespace.
func TestExplainAcceptsTheNamesOfTop(t *testing.T) {
	w := clitest.NewFakeBackend(newPoolObjects()...)
	out, err := w.Run(t.Context(), TopCommand(w.Environment()), "-A", "-o", "name")
	require.NoError(t, err)
	names := strings.Fields(out)
	require.Equal(t, []string{"mcd/shop/web", "mc/shop/web-b", "mc/shop/web-a"}, names)
	for name, says := range map[string]string{names[0]: "machinedeployment shop/web: ", names[1]: "machine shop/web-b: ", "node/shop/none": ""} {
		w.ClusterClient = kubefake.NewClientset()
		out, err := w.Run(t.Context(), Command(w.Environment()), name)
		if says == "" {
			require.EqualError(t, err, "there is no node none")
			continue
		}
		require.NoError(t, err)
		assert.Contains(t, out, says)
	}
}
