package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
	"millwright/observe/shard"
	"millwright/observe/target"
	"millwright/starter/clitest"
	"millwright/starter/kubecli"
)

func newMachine(namespace, name string, operation *v1alpha1.Operation) *v1alpha1.Machine {
	return &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Status:     v1alpha1.MachineStatus{CurrentOperation: operation},
	}
}

func newLease(name, holder string, renewed time.Time, labels, annotations map[string]string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "mw", Name: name, Labels: labels, Annotations: annotations},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &metav1.MicroTime{Time: renewed}},
	}
}

// newThreeShardBackend has an installation with three shards: shop is in shard 1, which the worker w-1 and the bridge
// b-1 serve; bank is in shard 0, which nobody serves, and has a target that does not answer; quiet is in shard 2, whose
// bridge is dead; late has no shard.
func newThreeShardBackend(extra ...runtime.Object) *clitest.FakeBackend {
	now := clitest.Now
	w := clitest.NewFakeBackend(
		newMachine("shop", "a", nil),
		newMachine(
			"shop",
			"b",
			&v1alpha1.Operation{Since: metav1.NewTime(now.Add(-time.Hour)), BlockedBy: []string{"Refused"}},
		),
		newMachine("shop", "c", &v1alpha1.Operation{Since: metav1.NewTime(now.Add(-time.Minute))}),
		newMachine("bank", "d", nil),
		&v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "late", Name: "e"}}, // no Machine yet
		newMachine("quiet", "f", nil),
	)
	down := target.Report{
		Namespace: "bank", Worker: "w-0", State: cache.TargetUnavailable, Why: "connection refused",
		Since: now.Add(-2 * time.Hour), WrittenAt: now,
	}
	ready := target.Report{
		Namespace: "shop",
		Worker:    "w-1",
		State:     cache.TargetReady,
		Since:     now.Add(-time.Minute),
		WrittenAt: now,
	}
	role := "machine.sapcloud.io/claims-of"
	w.ClusterClient = kubefake.NewClientset(append([]runtime.Object{
		newLease(v1alpha1.LeaseWorkers, "w-1", now, nil, map[string]string{
			v1alpha1.AnnotationInstallation: "prod", v1alpha1.AnnotationShards: "3",
		}),
		newLease("process", "w-1", now, map[string]string{role: "worker"}, nil),
		newLease("shard-1", "w-1", now, map[string]string{role: "worker", "machine.sapcloud.io/shard": "1"}, nil),
		newLease("shard-2", "w-1", now, map[string]string{role: "worker", "machine.sapcloud.io/shard": "2"}, nil),
		newLease("bridge", "b-1", now, map[string]string{role: "bridge"}, nil),
		newLease("dead-bridge", "b-0", now.Add(-2*time.Minute), map[string]string{role: "bridge"}, nil),
		newLease(
			"b-shard-1",
			"b-1",
			now.Add(-time.Hour),
			map[string]string{role: "bridge", "machine.sapcloud.io/shard": "1"},
			nil,
		),
		newLease("b-shard-2", "b-0", now, map[string]string{role: "bridge", "machine.sapcloud.io/shard": "2"}, nil),
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "mw", Name: shard.RecordName},
			Data:       map[string]string{"installation.shards": "3", "shop": "1", "bank": "0", "quiet": "2"},
		},
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "mw", Name: target.ReportsConfigMapName},
			Data:       map[string]string{down.Key(): down.Value(), ready.Key(): ready.Value()},
		},
	}, extra...)...)
	return w
}

func TestListShowsUnhealthyNamespacesFirst(t *testing.T) {
	w := newThreeShardBackend()
	out, err := w.Run(t.Context(), Command(w.Environment()), "list", "-o", "wide")
	require.NoError(t, err)
	assert.Equal(
		t,
		`NAMESPACE   STATE      TARGET        SINCE   MACHINES   IN MOTION   BLOCKED   OLDEST   SHARD   WORKER   WHY
bank        Unserved   Unavailable   120m    1          0           0         -        0       -        no live worker serves shard 0; connection refused
late        Unserved   shared        -       0          0           0         -        -       -        the namespace has no shard
quiet       Unserved   shared        -       1          0           0         -        2       w-1      no live bridge serves shard 2
shop        Served     Ready         60s     3          2           1         60m      1       w-1      -
`,
		out,
	)
	out, err = w.Run(t.Context(), Command(w.Environment()), "list", "-o", "json")
	require.NoError(t, err)
	assert.Contains(t, out, `"unserved": "NoBridge"`)
}

func TestReadersOfTargetsAndUnservedNamespaces(t *testing.T) {
	w := newThreeShardBackend()
	clients, err := w.Environment().NewClients(kubecli.ClusterAccess{})
	require.NoError(t, err)
	unserved, err := ReadUnservedReasons(t.Context(), clients, []string{"bank", "late", "quiet", "shop"}, clitest.Now)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{
		"bank": "no live worker serves shard 0", "late": "the namespace has no shard",
		"quiet": "no live bridge serves shard 2",
	}, unserved)
	targets, err := ReadTargetReports(t.Context(), clients, clitest.Now)
	require.NoError(t, err)
	assert.Len(t, targets, 2)
	assert.Equal(t, cache.TargetUnavailable, targets["bank"].State)
}

func TestMoveRecordsTheNewShard(t *testing.T) {
	w := newThreeShardBackend()
	out, err := w.Run(t.Context(), Command(w.Environment()), "move", "bank", "--shard", "1")
	require.NoError(t, err)
	assert.Equal(t, "namespace bank moved from shard 0 to shard 1; open runs keep their task queues\n", out)
	record, err := w.ClusterClient.CoreV1().ConfigMaps("mw").Get(t.Context(), shard.RecordName, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "1", record.Data["bank"])

	out, err = w.Run(t.Context(), Command(w.Environment()), "move", "bank", "--shard", "1")
	require.NoError(t, err)
	assert.Equal(t, "namespace bank belongs to shard 1 already\n", out)
	for arguments, want := range map[[2]string]string{
		{"bank", "3"}: "--shard=3: installation prod has the shards 0 to 2",
		{"late", "1"}: "namespace late has no shard: it has no object of Millwright",
	} {
		_, err = w.Run(t.Context(), Command(w.Environment()), "move", arguments[0], "--shard", arguments[1])
		require.EqualError(t, err, want)
	}
}
