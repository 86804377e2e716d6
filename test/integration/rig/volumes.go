//go:build integration

package rig

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CSIDriverName is the name of the CSI driver of the tests' volumes. The stack attaches or detaches a volume of this
// driver within a second.
const CSIDriverName = "csi.fake"

// RunStatefulSet creates a StatefulSet with one volume per pod, and waits until all volumes are attached.
func (p *Pool) RunStatefulSet(t *testing.T, app string, replicas int) {
	t.Helper()
	_, err := p.rig.Kube.StorageV1().CSIDrivers().Create(t.Context(), &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: CSIDriverName}, Spec: storagev1.CSIDriverSpec{AttachRequired: new(true)},
	}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	for i := range replicas {
		claim := fmt.Sprintf("data-%s-%d", app, i)
		_, err := p.rig.Kube.CoreV1().PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: p.Name + "-" + claim},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: size, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: "none",
				ClaimRef: &corev1.ObjectReference{Namespace: p.Namespace, Name: claim},
				PersistentVolumeSource: corev1.PersistentVolumeSource{
					CSI: &corev1.CSIPersistentVolumeSource{Driver: CSIDriverName, VolumeHandle: p.Name + "-" + claim},
				},
			},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	template, selector := p.PodTemplate(app, func(pod *corev1.PodTemplateSpec) {
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	})
	_, err = p.rig.Kube.AppsV1().StatefulSets(p.Namespace).Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec: appsv1.StatefulSetSpec{
			Replicas:            new(int32(replicas)),
			Selector:            selector,
			Template:            template,
			ServiceName:         app,
			PodManagementPolicy: appsv1.ParallelPodManagement,
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
	p.AwaitRunningPods(t, app, replicas)
	Eventually(t, "the volumes are attached", func() (bool, any) {
		n := len(p.AttachmentsByVolume(t))
		return n == replicas, n
	})
}

// AttachmentsByVolume returns the attached VolumeAttachments of the pool's volumes, by the name of the volume.
func (p *Pool) AttachmentsByVolume(t *testing.T) map[string]storagev1.VolumeAttachment {
	t.Helper()
	list, err := p.rig.Kube.StorageV1().VolumeAttachments().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	on := map[string]storagev1.VolumeAttachment{}
	for _, a := range list.Items {
		volume := *a.Spec.Source.PersistentVolumeName
		if a.Status.Attached && a.DeletionTimestamp == nil && len(volume) > len(p.Name) &&
			volume[:len(p.Name)+1] == p.Name+"-" {
			on[volume] = a
		}
	}
	return on
}

// AttachVolume creates a VolumeAttachment for a volume that has no PersistentVolume, and returns when the volume is
// attached. Only a test or the deletion of a machine detaches this volume.
func (r *Rig) AttachVolume(t *testing.T, volume, node string) {
	t.Helper()
	attachments := r.Kube.StorageV1().VolumeAttachments()
	_, err := attachments.Create(t.Context(), &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: volume},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: CSIDriverName,
			NodeName: node,
			Source:   storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	Eventually(t, "volume "+volume+" is attached", func() (bool, any) {
		a, err := attachments.Get(t.Context(), volume, metav1.GetOptions{})
		require.NoError(t, err)
		return a.Status.Attached, a.Status
	})
}
