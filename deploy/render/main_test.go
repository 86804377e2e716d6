package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// deployFolder is the path of the repository's folder deploy.
const deployFolder = ".."

func loadChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := readChart(deployFolder)
	require.NoError(t, err)
	return c
}

// exampleValues returns the values files of the folder chart/examples by file name, without the extension.
func exampleValues(t *testing.T) map[string]map[string]any {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(deployFolder, "chart/examples/*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	found := map[string]map[string]any{}
	for _, path := range paths {
		given, err := readValues(path)
		require.NoError(t, err)
		found[strings.TrimSuffix(filepath.Base(path), ".yaml")] = given
	}
	return found
}

// renderedObjects returns the objects that a chart renders for the given values. The key is kind, namespace and name.
func renderedObjects(t *testing.T, c *chart.Chart, given map[string]any) map[string]*unstructured.Unstructured {
	t.Helper()
	texts, err := renderTemplates(c, namespace, given, nil)
	require.NoError(t, err)
	var all []byte
	for path, text := range texts {
		if filepath.Ext(path) == ".yaml" {
			all = append(all, "\n---\n"+text...)
		}
	}
	return parseObjects(t, all)
}

func parseObjects(t *testing.T, text []byte) map[string]*unstructured.Unstructured {
	t.Helper()
	found := map[string]*unstructured.Unstructured{}
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		o := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal(document, &o.Object), "%s", document)
		if len(o.Object) == 0 {
			continue
		}
		key := objectKey(o)
		require.NotContains(t, found, key)
		found[key] = o
	}
	return found
}

func objectKey(o *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s/%s", o.GroupVersionKind().GroupKind(), o.GetNamespace(), o.GetName())
}

// kustomizeObjects returns the objects that `kubectl apply -k` would apply for a folder.
func kustomizeObjects(t *testing.T, folder string) map[string]*unstructured.Unstructured {
	t.Helper()
	options := krusty.MakeDefaultOptions()
	options.LoadRestrictions = types.LoadRestrictionsRootOnly // the same restriction as in kubectl
	resources, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), filepath.Join(deployFolder, folder))
	require.NoError(t, err)
	text, err := resources.AsYaml()
	require.NoError(t, err)
	return parseObjects(t, text)
}

// TestManifestsEqualTheRenderedChart fails if the chart was changed without `make generate`, or if a rendered file was
// edited by hand.
func TestManifestsEqualTheRenderedChart(t *testing.T) {
	to := t.TempDir()
	require.NoError(t, renderManifests(deployFolder, to))
	all, err := renderedFiles(deployFolder)
	require.NoError(t, err)
	for _, f := range all {
		want, err := os.ReadFile(filepath.Join(to, f.path))
		require.NoError(t, err)
		is, err := os.ReadFile(filepath.Join(deployFolder, f.path))
		require.NoError(t, err)
		assert.Equal(t, string(want), string(is), "%s: run make generate", f.path)
	}
}

func TestHelmAndKustomizeInstallTheSameObjects(t *testing.T) {
	for overlay, example := range map[string]string{"example": "virtual", "incus": "incus", "libvirt": "libvirt", "mcm": "mcm"} {
		t.Run(overlay, func(t *testing.T) {
			helm := renderedObjects(t, loadChart(t), exampleValues(t)[example])
			kustomize := kustomizeObjects(t, "overlays/"+overlay)
			space := "Namespace /" + namespace
			require.Contains(t, kustomize, space)
			delete(kustomize, space) // Helm creates the namespace with --create-namespace
			helm, kustomize = normalizeObjects(t, helm), normalizeObjects(t, kustomize)
			assert.ElementsMatch(t, slices.Collect(maps.Keys(kustomize)), slices.Collect(maps.Keys(helm)))
			for name, want := range kustomize {
				assert.Equal(t, marshalYAML(t, want), marshalYAML(t, helm[name]), name)
			}
		})
	}
}

// normalizeObjects removes the intended differences between Helm and kustomize. The intended differences are the pod
// annotation or ConfigMap name that changes with a setting (so that pods restart), the name of the bootstrap Job, and
// Helm's annotation that keeps the CRDs.
func normalizeObjects(t *testing.T, all map[string]*unstructured.Unstructured) map[string]*unstructured.Unstructured {
	t.Helper()
	config := ""
	for name, o := range all {
		if o.GetKind() == "ConfigMap" {
			require.Empty(t, config, "a second ConfigMap: %s", name)
			config = o.GetName()
		}
	}
	require.NotEmpty(t, config)
	same := map[string]*unstructured.Unstructured{}
	for _, o := range all {
		switch o.GetKind() {
		case "Job":
			o.SetName("millwright-bootstrap")
		case "CustomResourceDefinition":
			unstructured.RemoveNestedField(o.Object, "metadata", "annotations", "helm.sh/resource-policy")
		case "Deployment":
			unstructured.RemoveNestedField(o.Object, "spec", "template", "metadata", "annotations", "checksum/config")
			if left, _, _ := unstructured.NestedMap(o.Object, "spec", "template", "metadata", "annotations"); len(left) == 0 {
				unstructured.RemoveNestedField(o.Object, "spec", "template", "metadata", "annotations")
			}
		}
		encoded, err := json.Marshal(o.Object)
		require.NoError(t, err)
		neutral := &unstructured.Unstructured{}
		require.NoError(
			t,
			json.Unmarshal(
				bytes.ReplaceAll(encoded, []byte(`"name":"`+config+`"`), []byte(`"name":"millwright"`)),
				&neutral.Object,
			),
		)
		same[objectKey(neutral)] = neutral
	}
	return same
}

func marshalYAML(t *testing.T, o *unstructured.Unstructured) string {
	t.Helper()
	if o == nil {
		return ""
	}
	out, err := yaml.Marshal(o.Object)
	require.NoError(t, err)
	return string(out)
}

func TestChartPassesHelmLint(t *testing.T) {
	for name, given := range exampleValues(t) {
		t.Run(name, func(t *testing.T) {
			linted := lint.All(filepath.Join(deployFolder, "chart"), given, namespace, true)
			for _, m := range linted.Messages {
				assert.Less(t, m.Severity, support.WarningSev, "%v", m)
			}
		})
	}
}

func TestExamplesRenderTheirObjects(t *testing.T) {
	c := loadChart(t)
	full := renderedObjects(t, c, exampleValues(t)["full"])
	for _, name := range []string{
		"ClusterRoleBinding.rbac.authorization.k8s.io /millwright-provider-incus", "RoleBinding.rbac.authorization.k8s.io shop/millwright-provider-incus",
		"RoleBinding.rbac.authorization.k8s.io bakery/millwright-provider-incus", "RoleBinding.rbac.authorization.k8s.io shop/millwright-provider-aws",
		"PodMonitor.monitoring.coreos.com millwright/millwright", "PrometheusRule.monitoring.coreos.com millwright/millwright",
		"PodDisruptionBudget.policy millwright/millwright-provider-aws", "Deployment.apps shop/machine-controller-manager",
	} {
		assert.Contains(t, full, name)
	}
	for _, name := range []string{
		"RoleBinding.rbac.authorization.k8s.io kube-system/millwright-provider-incus", "RoleBinding.rbac.authorization.k8s.io bakery/millwright-provider-aws",
		"Role.rbac.authorization.k8s.io kube-system/millwright-worker",
	} {
		assert.NotContains(t, full, name)
	}
	for name := range full {
		assert.NotContains(t, name, "Job", "bootstrap is false")
	}
	assert.NotContains(
		t,
		marshalYAML(t, full["ClusterRole.rbac.authorization.k8s.io /millwright-worker"]),
		"secrets",
		"guardSecrets is false",
	)
	worker := marshalYAML(t, full["Deployment.apps millwright/millwright-worker"])
	incus := marshalYAML(t, full["Deployment.apps millwright/millwright-provider-incus"])
	for _, want := range []string{"--guard-secrets=false", "--target-kubeconfig=/target/kubeconfig", "secretName: target", "TEMPORAL_WORKER_BUILD_ID", "millwright@sha256:0123", "pool: control", "- name: registry"} {
		assert.Contains(t, worker, want)
	}
	for _, process := range []string{worker, incus} {
		for _, want := range []string{
			"--temporal-tls\n", "--temporal-tls-ca-path=/temporal/tls/ca.crt", "--temporal-tls-cert-path=/temporal/tls/tls.crt", "--temporal-tls-key-path=/temporal/tls/tls.key",
			"--temporal-tls-server-name=frontend.temporal.example.com", "mountPath: /temporal/tls\n", "secretName: temporal-client",
			"--payload-keys-path=/payload-keys/keys", "mountPath: /payload-keys\n", "secretName: payload-keys",
		} {
			assert.Contains(t, process, want)
		}
		assert.NotContains(t, process, "api-key")
	}
	assert.Contains(t, incus, "--max-cloud-calls-per-second=20")
	guard := full["Deployment.apps shop/machine-controller-manager"]
	assert.Contains(t, marshalYAML(t, guard), "--lease-namespace=millwright")
	assert.Equal(
		t,
		"millwright",
		guard.GetLabels()["app.kubernetes.io/part-of"],
		"millwright migrate check tells it from that of machine-controller-manager",
	)
	subjects := marshalYAML(t, full["RoleBinding.rbac.authorization.k8s.io millwright/millwright-heartbeats"])
	assert.Contains(t, subjects, "namespace: shop")
	assert.Contains(
		t,
		marshalYAML(t, full["Deployment.apps millwright/millwright-provider-aws"]),
		"--max-cloud-calls-per-second=2.5",
	)
	assert.NotContains(t, incus, "BUILD_ID")
	assert.Contains(
		t,
		marshalYAML(t, full["NetworkPolicy.networking.k8s.io millwright/millwright-provider-incus"]),
		"port: 8443",
	)
	assert.NotContains(
		t,
		marshalYAML(t, full["NetworkPolicy.networking.k8s.io millwright/millwright-provider-aws"]),
		"port: 7233",
		"Temporal has port 443",
	)
}

// Only the worker compares the cluster name with the name in its Lease.
func TestOnlyTheWorkerAcceptsANewClusterName(t *testing.T) {
	given := exampleValues(t)["incus"]
	given["acceptNewClusterName"] = "former"
	for name, o := range renderedObjects(t, loadChart(t), given) {
		assert.Equal(
			t,
			name == "Deployment.apps millwright/millwright-worker",
			strings.Contains(marshalYAML(t, o), "--accept-new-cluster-name=former"),
			name,
		)
	}
}

// Worker and bridge must select the same namespaces. If namespaces are listed, the worker may write only in the listed
// namespaces.
func TestWorkerAndBridgeHaveTheNamespaceFlags(t *testing.T) {
	given := exampleValues(t)["full"]
	given["namespaces"], given["exceptNamespaces"] = []any{"shop", "bakery", "other"}, []any{"other"}
	given["namespaceSelector"] = "fleet in (blue)"
	given["clusterAPI"] = map[string]any{"watchFilter": "millwright"}
	processes := []string{"Deployment.apps millwright/millwright-worker", "Deployment.apps millwright/millwright-bridge"}
	var bound []string
	for name, o := range renderedObjects(t, loadChart(t), given) {
		for _, flag := range []string{
			"--namespaces=shop,bakery,other\n", "--except-namespaces=other\n", "--namespace-selector=fleet in (blue)\n",
		} {
			assert.Equal(t, slices.Contains(processes, name), strings.Contains(marshalYAML(t, o), flag), "%s %s", name, flag)
		}
		if strings.HasSuffix(name, "-objects") && strings.HasSuffix(o.GetKind(), "Binding") {
			bound = append(bound, name)
		}
	}
	const binding = "RoleBinding.rbac.authorization.k8s.io "
	assert.ElementsMatch(t, []string{
		binding + "shop/millwright-objects", binding + "bakery/millwright-objects",
		binding + "shop/millwright-cluster-api-objects", binding + "bakery/millwright-cluster-api-objects",
	}, bound)
}

// The worker may read the Secrets of the drain namespaces only. The rights of the providers' roles are an option, and
// replace the list of API groups.
func TestRightsForClusterAPIAreOptional(t *testing.T) {
	const drains, providers = "/millwright-cluster-api-drains", "-cluster-api-providers"
	bindings := func(suffix string, settings map[string]any) (names []string) {
		given := exampleValues(t)["full"]
		given["clusterAPI"] = maps.Clone(settings)
		given["clusterAPI"].(map[string]any)["watchFilter"] = "millwright"
		for name, o := range renderedObjects(t, loadChart(t), given) {
			if strings.HasSuffix(o.GetKind(), "Binding") && strings.HasSuffix(name, suffix) {
				names = append(names, name)
			}
			assert.NotContains(t, marshalYAML(t, o), "apiGroups: []", name)
		}
		return names
	}
	const inNamespace, inCluster = "RoleBinding.rbac.authorization.k8s.io ", "ClusterRoleBinding.rbac.authorization.k8s.io "
	assert.Empty(t, bindings(drains, map[string]any{}))
	assert.ElementsMatch(t, []string{inNamespace + "shop" + drains, inNamespace + "bakery" + drains},
		bindings(drains, map[string]any{"drainNamespaces": []any{"shop", "bakery"}}))
	assert.Equal(t, []string{inCluster + drains}, bindings(drains, map[string]any{"drainNamespaces": []any{"*"}}))
	assert.Empty(t, bindings(providers, map[string]any{}))
	assert.ElementsMatch(
		t,
		[]string{inCluster + "/millwright-worker" + providers, inCluster + "/millwright-bridge" + providers},
		bindings(providers, map[string]any{"aggregateProviderRoles": true, "providerGroups": []any{}}),
	)
}

// A packaged chart contains the CRD files, not the symbolic link to them.
func TestAPackagedChartRendersTheSameObjects(t *testing.T) {
	archive, err := chartutil.Save(loadChart(t), t.TempDir())
	require.NoError(t, err)
	packaged, err := loader.Load(archive)
	require.NoError(t, err)
	want, is := renderedObjects(
		t,
		loadChart(t),
		exampleValues(t)["full"],
	), renderedObjects(
		t,
		packaged,
		exampleValues(t)["full"],
	)
	require.Contains(t, is, "CustomResourceDefinition.apiextensions.k8s.io /machines.machine.sapcloud.io")
	assert.Equal(t, want, is)
}

// The bootstrap Job connects to Temporal with the same TLS files and API key as the Deployments. The Job mounts no
// payload keys, because it writes no payloads.
func TestTheBootstrapJobHasTheTemporalFlags(t *testing.T) {
	given := withValue(exampleValues(t)["incus"], "temporal", map[string]any{
		"address":           "temporal:7233",
		"apiKeySecret":      "api",
		"payloadKeysSecret": "payload-keys",
		"tls":               map[string]any{"enabled": true, "secret": "certificates", "certificate": "", "key": ""},
	})
	for name, o := range renderedObjects(t, loadChart(t), given) {
		is := marshalYAML(t, o)
		switch o.GetKind() {
		case "Job", "Deployment":
			for _, want := range []string{
				"--temporal-tls\n", "--temporal-tls-ca-path=/temporal/tls/ca.crt", "secretName: certificates", "mountPath: /temporal/tls\n",
				"--temporal-api-key-path=/temporal/api-key/api-key", "secretName: api\n", "mountPath: /temporal/api-key\n",
			} {
				assert.Contains(t, is, want, name)
			}
			assert.NotContains(t, is, "cert-path", "the keys are empty")
			assert.Equal(t, o.GetKind() == "Deployment", strings.Contains(is, "payload-keys"), name)
		}
	}
}

// The chart renders no object of an API that the API server lacks or that a value disables.
func TestDisabledObjectsAreNotRendered(t *testing.T) {
	off := withValue(exampleValues(t)["incus"], "flowControl", map[string]any{"enabled": false})
	off = withValue(
		withValue(off, "networkPolicy", map[string]any{"enabled": false}),
		"crds",
		map[string]any{"install": false},
	)
	off = withValue(off, "priorityClass", map[string]any{"create": false, "name": "theirs"})
	for name, o := range renderedObjects(t, loadChart(t), off) {
		for _, kind := range []string{"FlowSchema", "PriorityLevelConfiguration", "NetworkPolicy", "CustomResourceDefinition", "PriorityClass"} {
			assert.NotEqual(t, kind, o.GetKind(), name)
		}
		if o.GetKind() == "Deployment" {
			assert.Contains(t, marshalYAML(t, o), "priorityClassName: theirs")
		}
	}

	old := *chartutil.DefaultCapabilities
	old.APIVersions = chartutil.VersionSet{"v1", "apps/v1"}
	texts, err := renderTemplates(loadChart(t), namespace, exampleValues(t)["incus"], &old)
	require.NoError(t, err)
	assert.Empty(t, strings.TrimSpace(texts["flowcontrol.yaml"]))
}

// The chart of a release has the release's version. The released chart renders the same objects as the repository's
// chart, by default with images of the release's version.
func TestReleasedChartDiffersOnlyInItsVersion(t *testing.T) {
	to := t.TempDir()
	require.NoError(t, writeChart(deployFolder, "v9.8.7-rc.1", to))
	released, err := loader.Load(filepath.Join(to, "millwright"))
	require.NoError(t, err)
	assert.Equal(t, "9.8.7-rc.1", released.Metadata.Version)
	for name, given := range exampleValues(t) {
		assert.Equal(t, renderedObjects(t, loadChart(t), given), renderedObjects(t, released, given), name)
	}
	worker := renderedObjects(t, released, map[string]any{"clusterName": "a"})["Deployment.apps millwright/millwright-worker"]
	assert.Contains(t, marshalYAML(t, worker), "image: millwright:v9.8.7-rc.1\n")
	require.ErrorContains(t, writeChart(deployFolder, "nine", to), "give the chart the version nine")
}

func TestWrongValuesAreExplained(t *testing.T) {
	c := loadChart(t)
	for name, row := range map[string]struct{ values, says string }{
		"no name":                    {`{}`, "clusterName is empty: give this installation a name"},
		"a name with a slash":        {`{clusterName: a/b}`, "at '/clusterName': 'a/b' does not match pattern"},
		"a misspelt value":           {`{clusterName: a, temporl: {}}`, "additional properties 'temporl' not allowed"},
		"a misspelt nested value":    {`{clusterName: a, worker: {replica: 3}}`, "at '/worker': additional properties 'replica' not allowed"},
		"an address without a port":  {`{clusterName: a, temporal: {address: temporal}}`, "at '/temporal/address': 'temporal' does not match pattern"},
		"a URL as an address":        {`{clusterName: a, temporal: {address: "https://temporal:7233"}}`, "at '/temporal/address'"},
		"a negative rate":            {`{clusterName: a, providers: {incus: {image: {repository: x}, maxCallsPerSecond: -1}}}`, "at '/providers/incus/maxCallsPerSecond': minimum"},
		"a port out of range":        {`{clusterName: a, providers: {incus: {image: {repository: x}, egressPorts: [70000]}}}`, "at '/providers/incus/egressPorts/0': maximum"},
		"a provider without image":   {`{clusterName: a, providers: {incus: {}}}`, "providers.incus.image.repository is empty: say which image runs"},
		"a provider in capitals":     {`{clusterName: a, providers: {AWS: {image: {repository: x}}}}`, "providers.AWS: the name of a provider has lower case letters"},
		"a tag in the repository":    {`{clusterName: a, image: {repository: "millwright:dev"}}`, "at '/image/repository'"},
		"a digest without algorithm": {`{clusterName: a, image: {digest: abc}}`, "at '/image/digest'"},
		"a flag in two words":        {`{clusterName: a, worker: {args: ["--log-level", debug]}}`, "at '/worker/args/1': 'debug' does not match pattern"},
		"a certificate without TLS":  {`{clusterName: a, temporal: {tls: {secret: certificates}}}`, "TLS is off: set temporal.tls.enabled"},
		"a path as a key":            {`{clusterName: a, temporal: {tls: {enabled: true, ca: a/b}}}`, "at '/temporal/tls/ca'"},
		"a number as a variable":     {`{clusterName: a, environment: {A: 1}}`, "at '/environment/A': got number, want string"},
		"a class without a name":     {`{clusterName: a, priorityClass: {name: ""}}`, "priorityClass.name is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			var given map[string]any
			require.NoError(t, yaml.Unmarshal([]byte(row.values), &given))
			_, err := renderTemplates(c, namespace, given, nil)
			require.ErrorContains(t, err, row.says)
		})
	}
}

// The golden file lists the objects that every installation has, their immutable fields, and the served versions of the
// CRDs. Lines may only be added, because a changed or removed line breaks upgrades. If an immutable field of an object
// needs a new value, the object needs a new name.
func TestUpgradesKeepImmutableFields(t *testing.T) {
	var lines []string
	for name, o := range renderedObjects(t, loadChart(t), exampleValues(t)["incus"]) {
		if o.GetKind() == "Job" {
			continue // each change of the Job changes the Job's name
		}
		lines = append(lines, name)
		fixed := map[string][]string{
			"Deployment": {"spec", "selector"}, "ClusterRoleBinding": {"roleRef"}, "RoleBinding": {"roleRef"},
			"PriorityClass": {"value"}, "CustomResourceDefinition": {"spec", "scope"},
		}
		if path := fixed[o.GetKind()]; path != nil {
			value, found, err := unstructured.NestedFieldNoCopy(o.Object, path...)
			require.NoError(t, err)
			require.True(t, found, name)
			encoded, err := json.Marshal(value)
			require.NoError(t, err)
			lines = append(lines, fmt.Sprintf("%s %s=%s", name, strings.Join(path, "."), encoded))
		}
		versions, _, err := unstructured.NestedSlice(o.Object, "spec", "versions")
		if err != nil || o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		for _, v := range versions {
			version, isMap := v.(map[string]any)
			require.True(t, isMap)
			lines = append(lines, fmt.Sprintf("%s version %v served=%v", name, version["name"], version["served"]))
		}
	}
	slices.Sort(lines)
	golden, err := os.ReadFile("testdata/unchangeable.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(golden)) {
		assert.Contains(t, lines, strings.TrimSpace(line))
	}
	for _, line := range lines {
		assert.Contains(t, string(golden), line+"\n", "new: add it to testdata/unchangeable.txt")
	}
}

// A Job cannot be updated, so a changed setting or image gives the Job a new name. Equal values give the Job the same
// name.
func TestAChangedJobHasANewName(t *testing.T) {
	job := func(given map[string]any) string {
		for _, o := range renderedObjects(t, loadChart(t), given) {
			if o.GetKind() == "Job" {
				return o.GetName()
			}
		}
		return ""
	}
	given := exampleValues(t)["incus"]
	before := job(given)
	require.NotEmpty(t, before)
	assert.Equal(t, before, job(given))
	assert.NotEqual(t, before, job(withValue(given, "image", map[string]any{"repository": "other"})))
	assert.NotEqual(t, before, job(withValue(given, "clusterName", "other")))
	assert.Equal(t, before, job(withValue(given, "bridge", map[string]any{"replicas": 3})))
}

// TestPodMonitorSelectsTheMetricsPorts decodes the rendered PodMonitor into the Go type of the Prometheus operator. The
// local stack does not run the Prometheus operator.
func TestPodMonitorSelectsTheMetricsPorts(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(deployFolder, "components/pod-monitor/monitor.yaml"))
	require.NoError(t, err)
	var monitor monitoringv1.PodMonitor
	require.NoError(t, yaml.UnmarshalStrict(text, &monitor))
	require.Len(t, monitor.Spec.PodMetricsEndpoints, 1)
	assert.Equal(t, "metrics", *monitor.Spec.PodMetricsEndpoints[0].Port)
	for name, o := range renderedObjects(t, loadChart(t), exampleValues(t)["incus"]) {
		if o.GetKind() == "Deployment" {
			labels, _, err := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "labels")
			require.NoError(t, err)
			assert.Subset(t, labels, monitor.Spec.Selector.MatchLabels, name)
		}
	}
}

// TestPrometheusRuleHasTheAlertRules decodes the rendered PrometheusRule into the Go type of the Prometheus operator.
// The rule must have the groups of deploy/alerts/rules.yaml, which Prometheus can load without the operator.
func TestPrometheusRuleHasTheAlertRules(t *testing.T) {
	texts, err := renderTemplates(loadChart(t), namespace, exampleValues(t)["full"], nil)
	require.NoError(t, err)
	var rule monitoringv1.PrometheusRule
	require.NoError(t, yaml.UnmarshalStrict([]byte(texts["prometheusrule.yaml"]), &rule))
	assert.Equal(t, "platform", rule.Labels["prometheus"])
	text, err := os.ReadFile(filepath.Join(deployFolder, "alerts/rules.yaml"))
	require.NoError(t, err)
	var want monitoringv1.PrometheusRuleSpec
	require.NoError(t, yaml.UnmarshalStrict(text, &want))
	require.NotEmpty(t, want.Groups)
	assert.Equal(t, want, rule.Spec)
}
