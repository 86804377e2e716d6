//go:build integration

package drain

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/test/integration/rig"
)

// csi is the driver of the volumes; the stack attaches and detaches what it has in a second.
const csi = "csi.fake"

// store runs a StatefulSet each of whose pods has a volume of its own, and returns when all are attached.
func store(t *testing.T, p *rig.Pool, app string, replicas int) {
	t.Helper()
	_, err := r.Kube.StorageV1().CSIDrivers().Create(t.Context(), &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: csi}, Spec: storagev1.CSIDriverSpec{AttachRequired: new(true)},
	}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	for i := range replicas {
		claim := fmt.Sprintf("data-%s-%d", app, i)
		_, err := r.Kube.CoreV1().PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: p.Name + "-" + claim},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: size, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: "none",
				ClaimRef: &corev1.ObjectReference{Namespace: p.Namespace, Name: claim},
				PersistentVolumeSource: corev1.PersistentVolumeSource{
					CSI: &corev1.CSIPersistentVolumeSource{Driver: csi, VolumeHandle: p.Name + "-" + claim},
				},
			},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	template, selector := p.PodTemplate(app, func(pod *corev1.PodTemplateSpec) {
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	})
	_, err = r.Kube.AppsV1().StatefulSets(p.Namespace).Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(replicas)), Selector: selector, Template: template, ServiceName: app, PodManagementPolicy: appsv1.ParallelPodManagement,
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new("none"),
					Resources: corev1.VolumeResourceRequirements{Requests: size},
				},
			}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	p.AwaitPods(t, app, replicas, 60*time.Second)
	rig.Eventually(t, 30*time.Second, "the volumes are attached", func() (bool, any) {
		n := len(attached(t, p))
		return n == replicas, n
	})
}

// attached returns how the volumes of the pool's pods are attached.
func attached(t *testing.T, p *rig.Pool) map[string]storagev1.VolumeAttachment {
	t.Helper()
	list, err := r.Kube.StorageV1().VolumeAttachments().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	on := map[string]storagev1.VolumeAttachment{}
	for _, a := range list.Items {
		volume := *a.Spec.Source.PersistentVolumeName
		if a.Status.Attached && a.DeletionTimestamp == nil && len(volume) > len(p.Name) && volume[:len(p.Name)+1] == p.Name+"-" {
			on[volume] = a
		}
	}
	return on
}

func TestU143_PodsWithVolumesMoveOneAfterTheOther(t *testing.T) {
	t.Parallel()
	p := pool(t, "volumes", 2, "")
	store(t, p, "db", 6)
	m, here := p.Host(t, "db")
	require.GreaterOrEqual(t, len(here), 2, "the scheduler spreads six pods over two nodes")
	p.Remove(t, m.Name)

	moved := map[string]time.Time{} // when the attachment to another node was made, which was not done before that
	rig.Eventually(t, 2*time.Minute, "all volumes have moved", func() (bool, any) {
		on := attached(t, p)
		for _, pod := range here {
			volume := p.Name + "-data-" + pod.Name
			if a, found := on[volume]; found && a.Spec.NodeName != m.Name {
				moved[volume] = a.CreationTimestamp.Time
			}
		}
		return len(moved) == len(here), moved
	})
	awaitGone(t, m, 30*time.Second)

	var evicted []request
	for _, q := range asked(t, p.Namespace) {
		require.Equal(t, "evict", q.Verb)
		require.Equal(t, 201, q.Code)
		evicted = append(evicted, q)
	}
	require.Len(t, evicted, len(here), "each pod is evicted once, and none of the pods that took their names (D41)")
	slices.SortFunc(evicted, func(x, y request) int { return x.At.Compare(y.At) })
	for i, q := range evicted[1:] {
		before := moved[p.Name+"-data-"+evicted[i].Pod]
		t.Logf("%s evicted at %s; the volume of %s came to another node after %s", q.Pod, q.At.Format("15:04:05.000"), evicted[i].Pod, before.Format("15:04:05"))
		require.True(t, q.At.After(before), "%s was evicted before the volume of %s had moved", q.Pod, evicted[i].Pod)
	}
}
