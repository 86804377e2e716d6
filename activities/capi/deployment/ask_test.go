package deployment_test

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"millwright/activities/activitiestest"
	ofclusterapi "millwright/activities/capi/deployment"
	activities "millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe/capi"
	"millwright/observe/capi/capitest"
	"millwright/observe/capi/deployment"
)

// discoveredExtensionConfig returns the ExtensionConfig of an extension, as Cluster API's discovery writes it.
func discoveredExtensionConfig(t *testing.T, e *httptest.Server) runtime.Object {
	t.Helper()
	c := runtimev1.ExtensionConfig{
		TypeMeta:   metav1.TypeMeta{APIVersion: runtimev1.GroupVersion.String(), Kind: "ExtensionConfig"},
		ObjectMeta: metav1.ObjectMeta{Name: "ext"},
	}
	c.Spec.ClientConfig.URL = e.URL
	c.Spec.ClientConfig.CABundle = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: e.Certificate().Raw})
	c.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"updates": "in-place"}}
	c.Status.Handlers = []runtimev1.ExtensionHandler{
		{
			Name:           "can-update.ext",
			RequestHook:    runtimev1.GroupVersionHook{APIVersion: hooksv1.GroupVersion.String(), Hook: "CanUpdateMachineSet"},
			TimeoutSeconds: 5,
		},
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&c)
	require.NoError(t, err)
	return &unstructured.Unstructured{Object: object}
}

func namespaceWithLabels(labels map[string]any) runtime.Object {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": capitest.Namespace, "labels": labels},
	}}
}

// startExtension starts an extension that handles calls with respond.
func startExtension(t *testing.T, respond http.HandlerFunc) *httptest.Server {
	t.Helper()
	e := httptest.NewUnstartedServer(respond)
	e.Config.ErrorLog = log.New(io.Discard, "", 0)
	e.StartTLS()
	t.Cleanup(e.Close)
	return e
}

// The activity writes the extension's answer about a former set into an annotation of this set.
func TestAnExtensionIsAskedAboutFormerSets(t *testing.T) {
	can := func(w http.ResponseWriter, r *http.Request) { // patches the former set's version to the current set's version
		var in hooksv1.CanUpdateMachineSetRequest
		err := json.NewDecoder(r.Body).Decode(&in)
		spec, _ := json.Marshal(
			map[string]any{
				"spec": map[string]any{
					"template": map[string]any{"spec": map[string]any{"version": in.Desired.MachineSet.Spec.Template.Spec.Version}},
				},
			},
		)
		out := hooksv1.CanUpdateMachineSetResponse{
			MachineSetPatch: hooksv1.Patch{PatchType: hooksv1.JSONMergePatchType, Patch: spec},
		}
		out.APIVersion = hooksv1.GroupVersion.String()
		out.Kind = "CanUpdateMachineSetResponse"
		out.Status = hooksv1.ResponseStatusSuccess
		assert.NoError(t, err)
		assert.NoError(t, json.NewEncoder(w).Encode(out))
	}
	fails := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }
	selected := namespaceWithLabels(map[string]any{"updates": "in-place"})
	for name, test := range map[string]struct {
		objects  []runtime.Object
		template string // the template that the former set names
		want     rollout.ExtensionAnswer
		says     string
		event    string
	}{
		"it can":                    {[]runtime.Object{selected, discoveredExtensionConfig(t, startExtension(t, can))}, "small", rollout.ExtensionAnswer{Possible: true}, "", ""},
		"it does not answer":        {[]runtime.Object{selected, discoveredExtensionConfig(t, startExtension(t, fails))}, "small", rollout.ExtensionAnswer{Failed: true}, "500", "Warning"},
		"it does not select":        {[]runtime.Object{namespaceWithLabels(nil), discoveredExtensionConfig(t, startExtension(t, can))}, "small", rollout.ExtensionAnswer{}, "no runtime extension", "Normal"},
		"none is registered":        {[]runtime.Object{selected}, "small", rollout.ExtensionAnswer{}, "no runtime extension", "Normal"},
		"a template does not exist": {[]runtime.Object{selected, discoveredExtensionConfig(t, startExtension(t, can))}, "gone", rollout.ExtensionAnswer{}, "no infrastructure template", "Normal"},
	} {
		t.Run(name, func(t *testing.T) {
			d, all := newDeploymentInRollout()
			all[1].(*clusterv1.MachineSet).Spec.Template.Spec.InfrastructureRef.Name = test.template
			w, a := newWorld(t, append(all, test.objects...)...)
			former := w.ClusterAPISet("d-1")
			in := ofclusterapi.AskExtensionInput{
				Deployment: activitiestest.NewRef(d),
				Sets:       []rollout.ObjectTarget{{Name: "d-1", UID: string(former.UID), Version: former.ResourceVersion}},
			}
			versions, err := activitiestest.RunActivity[kube.MinVersions](w, a.AskExtension, in)
			require.NoError(t, err)
			now := w.ClusterAPISet("d-1")
			assert.Equal(t, kube.MinVersions{capi.SetsResource: now.ResourceVersion}, versions)
			answer := deployment.ExtensionAnswer(now)
			assert.Equal(
				t,
				[]any{"uid-d-2", test.want.Possible, test.want.Failed},
				[]any{answer.TargetSetUID, answer.Possible, answer.Failed},
			)
			assert.Contains(t, answer.Why, test.says)
			assert.False(t, answer.RequestedAt.IsZero())
			if told := w.TakeNewEvents(); test.event == "" {
				assert.Empty(t, told)
			} else {
				assert.Equal(t, []string{test.event + " NotUpdatedInPlace MachineSet d-1: " + answer.Why}, told)
			}
			_, err = activitiestest.RunActivity[kube.MinVersions](w, a.AskExtension, in)
			activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
		})
	}
}

// The extension is not asked if no set is current any more.
func TestAnExtensionIsNotAskedWithoutACurrentSet(t *testing.T) {
	d, all := newDeploymentInRollout(func(d *clusterv1.MachineDeployment) { d.Spec.Template.Spec.Version = "v1.39.0" })
	w, a := newWorld(t, append(all, namespaceWithLabels(nil))...)
	_, err := activitiestest.RunActivity[kube.MinVersions](
		w,
		a.AskExtension,
		ofclusterapi.AskExtensionInput{
			Deployment: activitiestest.NewRef(d),
			Sets:       []rollout.ObjectTarget{{Name: "d-1", UID: "uid-d-1", Version: "900"}},
		},
	)
	activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
	assert.NotContains(t, w.ClusterAPISet("d-1").Annotations, v1alpha1.AnnotationInPlaceAnswer)
}

// A change of a set's size also writes the annotations about machines that move between sets. A resize without a
// machine move removes the annotations about moves from the set.
func TestResizeWritesMachineMoveAnnotations(t *testing.T) {
	d, all := newDeploymentInRollout()
	w, a := newWorld(t, all...)
	resize := func(name string, from, to int, transfer rollout.MachineTransfer) {
		t.Helper()
		s := w.ClusterAPISet(name)
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			a.ChangeClusterAPISets,
			activities.SetChanges{
				Deployment: activitiestest.NewRef(d),
				SetChanges: rollout.SetChanges{Resize: []rollout.SetResize{
					{
						Name:     name,
						UID:      string(s.UID),
						Version:  s.ResourceVersion,
						From:     from,
						To:       to,
						Desired:  3,
						Max:      4,
						Transfer: transfer,
					},
				}},
			},
		)
		require.NoError(t, err)
	}
	resize("d-2", 1, 2, rollout.MachineTransfer{From: "d-1", Acknowledged: "a"})
	resize("d-1", 2, 1, rollout.MachineTransfer{To: "d-2"})
	assert.Equal(
		t,
		rollout.MachineTransfer{From: "d-1", Acknowledged: "a"},
		deployment.MachineTransfer(w.ClusterAPISet("d-2")),
	)
	assert.Equal(t, rollout.MachineTransfer{To: "d-2"}, deployment.MachineTransfer(w.ClusterAPISet("d-1")))
	resize("d-1", 1, 1, rollout.MachineTransfer{})
	s := w.ClusterAPISet("d-1")
	assert.Equal(t, rollout.MachineTransfer{}, deployment.MachineTransfer(s))
	assert.NotContains(t, s.Annotations, clusterv1.MachineSetMoveMachinesToMachineSetAnnotation)
}
