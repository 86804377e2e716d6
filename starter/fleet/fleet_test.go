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

// newBackend has an installation with two shards: shop is in shard 1, which the worker w-1 serves; bank is in shard 0,
// which nobody serves, and has a target that does not answer.
func newBackend(extra ...runtime.Object) *clitest.FakeBackend {
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
		newMachine("late", "e", nil),
	)
	down := target.Report{
		Namespace: "bank", Worker: "w-0", State: cache.TargetUnavailable, Why: "connection refused",
		Since: now.Add(-2 * time.Hour), At: now,
	}
	ready := target.Report{
		Namespace: "shop",
		Worker:    "w-1",
		State:     cache.TargetReady,
		Since:     now.Add(-time.Minute),
		At:        now,
	}
	role := "machine.sapcloud.io/claims-of"
	w.ClusterClient = kubefake.NewClientset(append([]runtime.Object{
		newLease(v1alpha1.LeaseWorkers, "w-1", now, nil, map[string]string{
			v1alpha1.AnnotationInstallation: "prod", v1alpha1.AnnotationShards: "2",
		}),
		newLease("process", "w-1", now, map[string]string{role: "worker"}, nil),
		newLease("shard-1", "w-1", now, map[string]string{role: "worker", "machine.sapcloud.io/shard": "1"}, nil),
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "mw", Name: shard.RecordName},
			Data:       map[string]string{"installation.shards": "2", "shop": "1", "bank": "0"},
		},
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "mw", Name: target.ReportsName},
			Data:       map[string]string{down.Key(): down.Text(), ready.Key(): ready.Text()},
		},
	}, extra...)...)
	return w
}

func TestListShowsUnwellNamespacesFirst(t *testing.T) {
	w := newBackend()
	out, err := w.Run(t.Context(), Command(w.Environment()), "list", "-o", "wide")
	require.NoError(t, err)
	assert.Equal(t, `NAMESPACE   TARGET        SINCE   MACHINES   IN MOTION   STUCK   OLDEST   SHARD   WORKER   WHY
bank        Unavailable   120m    1          0           0       -        0       -        connection refused
late        shared        -       1          0           0       -        -       -        -
shop        Ready         60s     3          2           1       60m      1       w-1      -
`, out)
}

func TestMoveRecordsTheNewShard(t *testing.T) {
	w := newBackend()
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
		{"bank", "2"}: "--shard=2: installation prod has the shards 0 to 1",
		{"late", "1"}: "namespace late has no shard: it has no object of Millwright",
	} {
		_, err = w.Run(t.Context(), Command(w.Environment()), "move", arguments[0], "--shard", arguments[1])
		require.EqualError(t, err, want)
	}
}
