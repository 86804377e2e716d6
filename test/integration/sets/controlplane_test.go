//go:build integration

package sets

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/test/integration/rig"
)

// controlPlaneResource is a resource for control planes that only these tests define.
var controlPlaneResource = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "planes"}

func newDynamicClient() (dynamic.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", testRig.Stack.KubeconfigPath(component.TestIdentity))
	if err != nil {
		return nil, err
	}
	return dynamic.NewForConfig(config)
}

// installControlPlaneCRD creates the CRD for control planes, allows Millwright's processes to read control planes, and
// waits until the API server serves them.
func installControlPlaneCRD(ctx context.Context) error {
	c, err := newDynamicClient()
	if err != nil {
		return err
	}
	names := map[string]any{"plural": controlPlaneResource.Resource, "singular": "plane", "kind": "Plane"}
	anything := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	_, err = c.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}).
		Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1",
			"kind":       "CustomResourceDefinition",
			"metadata":   map[string]any{"name": controlPlaneResource.Resource + "." + controlPlaneResource.Group},
			"spec": map[string]any{
				"group": controlPlaneResource.Group,
				"scope": "Namespaced",
				"names": names,
				"versions": []any{
					map[string]any{
						"name":    controlPlaneResource.Version,
						"served":  true,
						"storage": true,
						"schema":  map[string]any{"openAPIV3Schema": anything},
					},
				},
			},
		}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "read-planes"}, Rules: []rbacv1.PolicyRule{
		{
			APIGroups: []string{controlPlaneResource.Group},
			Resources: []string{controlPlaneResource.Resource},
			Verbs:     []string{"get", "list", "watch"},
		},
	}}
	if _, err = testRig.Kube.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return err
	}
	everybody := rbacv1.Subject{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "system:authenticated"}
	_, err = testRig.Kube.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "read-planes"}, Subjects: []rbacv1.Subject{everybody},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "read-planes"},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	// The API server answers "not found" until it serves a new resource, which takes longer on a busy computer.
	return wait.PollUntilContextTimeout(
		ctx,
		50*time.Millisecond,
		time.Minute,
		true,
		func(ctx context.Context) (bool, error) {
			_, err := c.Resource(controlPlaneResource).Namespace("default").List(ctx, metav1.ListOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return false, err
			}
			return err == nil, nil
		},
	)
}

// If a control plane is not stable, or its version is too old, a set creates no machines and reports the reason. When
// the control plane changes, the set is reconciled.
func TestUnstableControlPlaneBlocksMachineCreation(t *testing.T) {
	c, err := newDynamicClient()
	require.NoError(t, err)
	set := func(change string) {
		t.Helper()
		_, err := c.Resource(controlPlaneResource).
			Namespace("default").
			Patch(t.Context(), "main", types.MergePatchType, []byte(change), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	_, err = c.Resource(controlPlaneResource).
		Namespace("default").
		Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Plane", "metadata": map[string]any{"name": "main"},
			"spec":   map[string]any{"version": "v1.31.2", "replicas": int64(3)},
			"status": map[string]any{"version": "v1.31.2", "availableReplicas": int64(2)},
		}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(
			t,
			c.Resource(controlPlaneResource).Namespace("default").Delete(context.Background(), "main", metav1.DeleteOptions{}),
		)
	})
	testRig.CreateNamespace(t, "preflight", "")
	versioned := func(s *v1alpha1.MachineSet) {
		s.Spec.Template.Annotations = map[string]string{v1alpha1.AnnotationKubernetesVersion: "v1.31.1"}
	}
	seen := func() {
		t.Helper()
		rig.Eventually(t, "the worker has seen the control plane", func() (bool, any) {
			probe := createSet(t, "preflight", "probe", 1, versioned)
			defer probe.deleteSet(t)
			rig.Eventually(t, "the set was looked at", func() (bool, any) {
				c := probe.readCondition(t, v1alpha1.MachineSetMachinesCreated)
				return c.Reason != "", c
			})
			c := probe.readCondition(t, v1alpha1.MachineSetMachinesCreated)
			return c.Reason == "PreflightCheckFailed", c
		})
	}
	seen()
	s := createSet(t, "preflight", "preflight", 3, versioned)
	s.awaitCondition(t, v1alpha1.MachineSetMachinesCreated, v1alpha1.ConditionFalse, "PreflightCheckFailed")
	require.Contains(
		t,
		s.readCondition(t, v1alpha1.MachineSetScalingUp).Message,
		`Plane default/main has 2 of 3 replicas available ("ControlPlaneIsStable" preflight check failed)`,
	)
	require.Empty(t, s.readMachines(t))
	rig.Eventually(t, "condition, column, page and command say the same", func() (bool, any) {
		blocked, o := s.readCondition(t, v1alpha1.MachineSetBlocked), s.readSet(t).Status.CurrentOperation
		if o == nil || blocked.Message == "" {
			return false, o
		}
		first := testRig.RunMillwright(t, "explain", "machineset/preflight", "-n", "preflight")[0]
		column, err := testRig.Stack.RunKubectl(
			t.Context(),
			"get",
			"machineset",
			"-n",
			"preflight",
			"preflight",
			"--no-headers",
		)
		require.NoError(t, err)
		page, _, _ := strings.Cut(testRig.WorkflowDetails(t, o.WorkflowID), "\n")
		if page != blocked.Message ||
			len(
				testRig.WorkflowRuns(t, `Stuck = true AND ExecutionStatus = "Running" AND MachineNamespace = "preflight"`),
			) == 0 {
			return false, []string{o.WorkflowID, page, "or no open run is Stuck"}
		}
		says := strings.Contains(blocked.Message, "Plane default/main has 2 of 3 replicas available") &&
			o.WaitsFor == blocked.Message &&
			first == "machineset preflight/preflight: "+blocked.Message &&
			o.Summary != "" && strings.HasSuffix(strings.TrimSpace(string(column)), "  "+o.Summary)
		return says, []string{blocked.Message, first, string(column)}
	})

	set(`{"status":{"availableReplicas":3}}`)
	s.awaitRunningMachines(t, 3)
	s.awaitCondition(t, v1alpha1.MachineSetMachinesCreated, v1alpha1.ConditionTrue, "MachinesCreated")

	set(`{"spec":{"version":"v1.30.0"}}`) // machines must not have a newer version than the control plane
	seen()
	s.scale(t, 4)
	s.awaitCondition(t, v1alpha1.MachineSetMachinesCreated, v1alpha1.ConditionFalse, "PreflightCheckFailed")
	require.Contains(t, s.readCondition(t, v1alpha1.MachineSetScalingUp).Message, "KubernetesVersionSkew")
	s.patch(
		t,
		fmt.Sprintf(`{"metadata":{"annotations":{%q:"KubernetesVersionSkew"}}}`, v1alpha1.AnnotationSkipPreflightChecks),
	)
	s.awaitRunningMachines(t, 4)
	s.deleteSet(t)
}
