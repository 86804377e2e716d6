package capi_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/observe/capi"
)

func TestReturnForTopology(t *testing.T) {
	const finalizer = clusterv1.MachineSetTopologyFinalizer
	deleting := func(o *metav1.ObjectMeta) { o.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
	ours := map[string]string{clusterv1.WatchLabel: "millwright", "pool": "a"}
	for name, row := range map[string]struct {
		change func(*metav1.ObjectMeta)
		value  string
		want   map[string]string
	}{
		"core's value":       {deleting, "upstream", map[string]string{clusterv1.WatchLabel: "upstream", "pool": "a"}},
		"core has no filter": {deleting, "", map[string]string{"pool": "a"}},
		"not deleted":        {func(*metav1.ObjectMeta) {}, "upstream", ours},
		"no topology": {func(o *metav1.ObjectMeta) {
			deleting(o)
			o.Finalizers = nil
		}, "upstream", ours},
		"no labels": {func(o *metav1.ObjectMeta) {
			deleting(o)
			o.Labels = nil
		}, "upstream", map[string]string{clusterv1.WatchLabel: "upstream"}},
	} {
		o := &metav1.ObjectMeta{Finalizers: []string{finalizer}, Labels: ours}
		row.change(o)
		capi.ReturnForTopology(o, finalizer, row.value)
		assert.Equal(t, row.want, o.Labels, name)
	}
	assert.Equal(t, "millwright", ours[clusterv1.WatchLabel], "the labels belong to the caches")
}
