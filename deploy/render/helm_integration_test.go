//go:build integration

package main

import (
	"context"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/release"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/test/integration/rig"
)

// testAPIServer is an API server in which Helm installs the chart; no pod runs.
type testAPIServer struct {
	config        *rest.Config
	kubeClient    kubernetes.Interface
	dynamicClient dynamic.Interface
	helmConfig    *action.Configuration
}

func startTestAPIServer(t *testing.T) *testAPIServer {
	t.Helper()
	s, err := stack.Up(t.Context(), stack.Options{
		Dir: t.TempDir(), UseFreePorts: true, EndsWithThisProcess: true, Components: []string{component.APIServer},
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Down(context.WithoutCancel(t.Context()))) })
	kubeconfig, in := s.KubeconfigPath(component.AdminIdentity), namespace
	c := &testAPIServer{helmConfig: new(action.Configuration)}
	c.config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	c.config.QPS = -1
	c.kubeClient, err = kubernetes.NewForConfig(c.config)
	require.NoError(t, err)
	c.dynamicClient, err = dynamic.NewForConfig(c.config)
	require.NoError(t, err)
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig, flags.Namespace = &kubeconfig, &in
	require.NoError(t, c.helmConfig.Init(flags, namespace, "secret", func(string, ...any) {}))
	return c
}

func (c *testAPIServer) upgradeChart(t *testing.T, given map[string]any) {
	t.Helper()
	upgrade := action.NewUpgrade(c.helmConfig)
	upgrade.Namespace = namespace
	done, err := upgrade.RunWithContext(t.Context(), "millwright", loadChart(t), given)
	require.NoError(t, err)
	require.Equal(t, release.StatusDeployed, done.Info.Status)
}

// TestHelmInstallsUpgradesAndRollsBackTheChart installs the chart, upgrades it with the values of each example, rolls
// it back and uninstalls it.
func TestHelmInstallsUpgradesAndRollsBackTheChart(t *testing.T) {
	c := startTestAPIServer(t)
	for _, name := range []string{"shop", "bakery"} {
		space := &unstructured.Unstructured{
			Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}},
		}
		_, err := c.resourceClient("", "v1", "namespaces").Create(t.Context(), space, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	// The API server lacks the CRDs of the Prometheus operator. TestPodMonitorSelectsTheMetricsPorts and
	// TestPrometheusRuleHasTheAlertRules check the objects of these kinds.
	full := withValue(exampleValues(t)["full"], "podMonitor", map[string]any{"enabled": false})
	full = withValue(full, "prometheusRule", map[string]any{"enabled": false})

	install := action.NewInstall(c.helmConfig)
	install.ReleaseName, install.Namespace, install.CreateNamespace = "millwright", namespace, true
	install.DryRunOption, install.DryRun = "server", true
	_, err := install.RunWithContext(t.Context(), loadChart(t), exampleValues(t)["incus"])
	require.NoError(t, err)
	install.DryRunOption, install.DryRun = "", false
	done, err := install.RunWithContext(t.Context(), loadChart(t), exampleValues(t)["incus"])
	require.NoError(t, err)
	require.Contains(t, done.Info.Notes, `Millwright v0.1.0 is installed as "example"`)
	require.Contains(t, done.Info.Notes, "Providers that are served: incus.")
	c.requireRenderedObjects(t, exampleValues(t)["incus"])
	uids := c.crdUIDs(t)
	c.createClass(t)
	t.Run("the API server gives the accounts a share of their own", c.testFlowControl)

	for _, given := range []map[string]any{full, exampleValues(t)["virtual"], exampleValues(t)["mcm"], exampleValues(t)["libvirt"], exampleValues(t)["incus"]} {
		c.upgradeChart(t, given)
		c.requireRenderedObjects(t, given)
	}
	rollback := action.NewRollback(c.helmConfig)
	rollback.Version = 2
	require.NoError(t, rollback.Run("millwright"))
	c.requireRenderedObjects(t, full)

	c.upgradeChart(t, withValue(full, "crds", map[string]any{"install": false}))
	require.Equal(t, uids, c.crdUIDs(t), "CRDs stay when the chart has them no more")
	_, err = action.NewUninstall(c.helmConfig).Run("millwright")
	require.NoError(t, err)
	require.Equal(t, uids, c.crdUIDs(t), "CRDs stay when the release goes")
	_, err = c.resourceClient("machine.sapcloud.io", "v1alpha1", "machineclasses").
		Namespace("shop").
		Get(t.Context(), "small", metav1.GetOptions{})
	require.NoError(t, err, "and so do the objects")
	deployments, err := c.kubeClient.AppsV1().Deployments(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, deployments.Items)
	roles, err := c.kubeClient.RbacV1().
		ClusterRoles().
		List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=millwright"})
	require.NoError(t, err)
	require.Empty(t, roles.Items)
}

func (c *testAPIServer) resourceClient(group, version, resource string) dynamic.NamespaceableResourceInterface {
	return c.dynamicClient.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
}

// requireRenderedObjects requires that the API server has exactly the objects that the chart renders for the given
// values.
func (c *testAPIServer) requireRenderedObjects(t *testing.T, given map[string]any) {
	t.Helper()
	want := renderedObjects(t, loadChart(t), given)
	for _, of := range []struct{ group, version, resource string }{
		{"apps", "v1", "deployments"},
		{"batch", "v1", "jobs"},
		{"policy", "v1", "poddisruptionbudgets"},
		{"networking.k8s.io", "v1", "networkpolicies"},
		{"rbac.authorization.k8s.io", "v1", "clusterroles"},
		{"rbac.authorization.k8s.io", "v1", "clusterrolebindings"},
		{"rbac.authorization.k8s.io", "v1", "roles"},
		{"rbac.authorization.k8s.io", "v1", "rolebindings"},
		{"", "v1", "serviceaccounts"},
		{"", "v1", "configmaps"},
		{"scheduling.k8s.io", "v1", "priorityclasses"},
		{"flowcontrol.apiserver.k8s.io", "v1", "flowschemas"},
		{"flowcontrol.apiserver.k8s.io", "v1", "prioritylevelconfigurations"},
	} {
		list, err := c.resourceClient(of.group, of.version, of.resource).
			List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=millwright"})
		require.NoError(t, err)
		var there []string
		for _, o := range list.Items {
			there = append(there, objectKey(&o))
			if wanted := want[objectKey(&o)]; wanted != nil {
				assert.Subset(t, o.GetLabels(), wanted.GetLabels())
			}
		}
		var wanted []string
		for name, o := range want {
			if o.GroupVersionKind().Group == of.group && resourceNameOfKind(o.GetKind()) == of.resource {
				wanted = append(wanted, name)
			}
		}
		slices.Sort(there)
		slices.Sort(wanted)
		assert.Equal(t, wanted, there)
	}
	for name, o := range want {
		if o.GetKind() != "Deployment" {
			continue
		}
		is, err := c.kubeClient.AppsV1().Deployments(o.GetNamespace()).Get(t.Context(), o.GetName(), metav1.GetOptions{})
		require.NoError(t, err)
		containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		require.NoError(t, err)
		container, isMap := containers[0].(map[string]any)
		require.True(t, isMap)
		assert.Equal(t, container["image"], is.Spec.Template.Spec.Containers[0].Image, name)
		arguments, _, err := unstructured.NestedStringSlice(container, "args")
		require.NoError(t, err)
		assert.Equal(t, arguments, is.Spec.Template.Spec.Containers[0].Args, name)
	}
}

// resourceNameOfKind returns the resource name of a kind of the chart.
func resourceNameOfKind(kind string) string {
	switch kind {
	case "NetworkPolicy":
		return "networkpolicies"
	case "PriorityClass":
		return "priorityclasses"
	}
	lower := []byte(kind)
	for i, b := range lower {
		if b >= 'A' && b <= 'Z' {
			lower[i] = b + 'a' - 'A'
		}
	}
	return string(lower) + "s"
}

// crdUIDs returns the UIDs of Millwright's CRDs by name.
func (c *testAPIServer) crdUIDs(t *testing.T) map[string]string {
	t.Helper()
	list, err := c.resourceClient("apiextensions.k8s.io", "v1", "customresourcedefinitions").
		List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	uids := map[string]string{}
	for _, o := range list.Items {
		uids[o.GetName()] = string(o.GetUID())
	}
	require.Len(t, uids, 6)
	return uids
}

// createClass creates a MachineClass as soon as the API server serves this kind.
func (c *testAPIServer) createClass(t *testing.T) {
	t.Helper()
	class := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "metadata": map[string]any{"name": "small"},
		"provider": "incus", "providerSpec": map[string]any{},
	}}
	rig.Eventually(t, "MachineClasses are served", func() (bool, any) {
		_, err := c.resourceClient("machine.sapcloud.io", "v1alpha1", "machineclasses").
			Namespace("shop").
			Create(t.Context(), class, metav1.CreateOptions{})
		return err == nil || apierrors.IsAlreadyExists(err), err
	})
}

// testFlowControl sends requests with the bridge's service account. A header of the response names the flow schema that
// the API server used.
func (c *testAPIServer) testFlowControl(t *testing.T) {
	token, err := c.kubeClient.CoreV1().
		ServiceAccounts(namespace).
		CreateToken(t.Context(), "millwright-bridge", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	bridge := rest.AnonymousClientConfig(c.config)
	bridge.BearerToken = token.Status.Token
	for path, name := range map[string]string{
		"/api/v1/nodes": "millwright", "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases/millwright-bridge": "millwright-leases",
	} {
		flow, err := c.kubeClient.FlowcontrolV1().FlowSchemas().Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		level, err := c.kubeClient.FlowcontrolV1().
			PriorityLevelConfigurations().
			Get(t.Context(), flow.Spec.PriorityLevelConfiguration.Name, metav1.GetOptions{})
		require.NoError(t, err)
		rig.Eventually(t, "a request is served by the flow schema "+name, func() (bool, any) {
			status, header := rig.GetAPIServerPath(t, bridge, path)
			return header.Get("X-Kubernetes-Pf-Flowschema-Uid") == string(flow.UID) &&
				header.Get("X-Kubernetes-Pf-Prioritylevel-Uid") == string(level.UID) && status != http.StatusForbidden, header
		})
	}
}
