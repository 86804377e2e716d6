// Tier: test. The API server's answers are the first errors that users see.

//go:build integration

// Package admission tests which objects of machine.sapcloud.io a real API server accepts, and with which errors the API
// server refuses other objects. The package installs deploy/crds and needs neither bridge nor worker. The package does
// not test the effect of accepted objects on controllers.
package admission

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"millwright/api/v1alpha1"
)

var updateGolden = flag.Bool("update", false, "write testdata/bad.golden instead of comparing with it")

func TestCRDsInTheAPIServer(t *testing.T) {
	api := startAPIServer(t)
	t.Run("bad objects are refused with an answer that helps", func(t *testing.T) { testRefusedObjects(t, api) })
	t.Run("bad node templates are refused", func(t *testing.T) { testInvalidNodeTemplates(t, api) })
	t.Run("good objects are taken as they are", func(t *testing.T) { testAcceptedObjects(t, api) })
	t.Run("replicas are scaled through the scale subresource", func(t *testing.T) { testScaleSubresource(t, api) })
	t.Run("status is written through its subresource only", func(t *testing.T) { testStatusSubresource(t, api) })
	t.Run("kubectl shows short names and columns", func(t *testing.T) { testPrinterColumns(t, api) })
}

// answerSeparator separates the answers in the golden file. An answer has no empty line.
const answerSeparator = "\n\n"

func testRefusedObjects(t *testing.T, api *apiServer) {
	const golden = "testdata/bad.golden"
	var answers []string
	files := yamlFiles(t, "testdata/bad")
	require.GreaterOrEqual(t, len(files), 30)
	for _, file := range files {
		_, err := api.createObject(t.Context(), readFile(t, file))
		require.Error(t, err, "%s was taken", file)
		answers = append(answers, filepath.Base(file)+"\n"+errorLines(err))
	}
	if *updateGolden {
		require.NoError(t, os.WriteFile(golden, []byte(strings.Join(answers, answerSeparator)+"\n"), 0o644))
	}
	want := strings.Split(strings.TrimSuffix(string(readFile(t, golden)), "\n"), answerSeparator)
	assert.Len(t, want, len(answers), "run with -update, and read what changed")
	for _, got := range answers {
		if !slices.Contains(want, got) {
			t.Errorf("%s does not hold this answer; run with -update, and read what changed:\n%s", golden, got)
		}
	}
}

// Each invalid field of a node template must be in the error; this test does not use the golden file.
func testInvalidNodeTemplates(t *testing.T, api *apiServer) {
	for name, row := range map[string]struct{ file, field string }{
		"node template with a bad capacity": {"machineclass-capacity-no-quantity.yaml", "nodeTemplate.capacity.cpu"},
		"node template without a region":    {"machineclass-node-template-empty.yaml", "nodeTemplate.region"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := api.createObject(t.Context(), readFile(t, filepath.Join("testdata/bad", row.file)))
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			require.Contains(t, errorLines(err), "  "+row.field+": ")
		})
	}
}

// errorLines returns the error that kubectl prints: one line per cause, or the message if there are no causes. The
// lines are sorted, because the API server returns the causes in random order.
func errorLines(err error) string {
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		return "  no answer of an API server: " + err.Error()
	}
	var lines []string
	if details := status.ErrStatus.Details; details != nil {
		for _, cause := range details.Causes {
			lines = append(lines, fmt.Sprintf("  %s: %s", cause.Field, cause.Message))
		}
	}
	if len(lines) == 0 {
		lines = []string{"  " + status.ErrStatus.Message}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Defaults that the API server writes into a strategy, in the format of diffObjects.
const (
	defaultStrategy     = `spec.strategy={"rollingUpdate":{"maxSurge":1,"maxUnavailable":0},"type":"RollingUpdate"}`
	defaultStrategyType = `spec.strategy.type="RollingUpdate"`
)

// defaultsByFile lists the defaults that the API server writes into omitted fields, by file. Objects of other files are
// stored unchanged.
var defaultsByFile = map[string][]string{
	"machineset-minimal.yaml":                    {"spec.replicas=0"},
	"machinedeployment-all-optional-absent.yaml": {"spec.replicas=0", defaultStrategy},
	"machinedeployment-nullable-fields.yaml":     {defaultStrategy},
	"machinedeployment-strategy-null.yaml":       {defaultStrategy},
	"machinedeployment-strategy-empty.yaml":      {defaultStrategyType},
	"machinedeployment-strategy-rolling-empty-block.yaml": {
		"spec.strategy.rollingUpdate.maxSurge=1", "spec.strategy.rollingUpdate.maxUnavailable=0", defaultStrategyType,
	},
	"machinedeployment-strategy-recreate-with-other-blocks.yaml": {
		"spec.strategy.inPlaceUpdate.maxSurge=1", "spec.strategy.inPlaceUpdate.maxUnavailable=0",
	},
	"machinedeployment-surge-above-hundred-percent.yaml": {defaultStrategyType},
	"machinedeployment-in-place-manual.yaml": {
		"spec.strategy.inPlaceUpdate.maxSurge=1", "spec.strategy.inPlaceUpdate.maxUnavailable=0",
	},
}

func testAcceptedObjects(t *testing.T, api *apiServer) {
	files := yamlFiles(t, "testdata/good")
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			sent := readFile(t, file)
			stored, err := api.createObject(t.Context(), sent)
			require.NoError(t, err)

			added, lost := diffObjects("", parseYAML(t, sent), parseYAML(t, stored))
			assert.Empty(t, lost, "the API server dropped or changed what was sent")
			assert.Equal(t, defaultsByFile[filepath.Base(file)], added)

			// The stored object is sent again, as kubectl apply does. The API server must accept an object that it has
			// stored.
			require.NoError(t, api.updateObject(t.Context(), stored))
		})
	}
	for file := range defaultsByFile {
		assert.FileExists(t, filepath.Join("testdata/good", file))
	}
	t.Run("an object at all bounds is within the cost of the rules", func(t *testing.T) {
		text, err := json.Marshal(largestDeployment())
		require.NoError(t, err)
		_, err = api.createObject(t.Context(), text)
		require.NoError(t, err)
	})
	t.Run("typed clients can read them all", func(t *testing.T) {
		client := api.typedClient.MachineV1alpha1()
		_, err := client.Machines(testNamespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		_, err = client.MachineSets(testNamespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		_, err = client.MachineDeployments(testNamespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		_, err = client.MachineClasses(testNamespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
	})
}

// largestDeployment returns a deployment whose maps and lists have the maximum length that the CRD allows.
func largestDeployment() *v1alpha1.MachineDeployment {
	pad := func(i int) string { return fmt.Sprintf("a%062d", i) }
	labels := map[string]string{}
	for i := range 256 {
		labels[pad(i)] = pad(i)
	}
	values := make([]string, 256)
	for i := range values {
		values[i] = pad(i)
	}
	expressions := make([]metav1.LabelSelectorRequirement, 64)
	for i := range expressions {
		expressions[i] = metav1.LabelSelectorRequirement{Key: pad(i), Operator: metav1.LabelSelectorOpIn, Values: values}
	}
	big := &v1alpha1.MachineDeployment{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "MachineDeployment"},
		Spec: v1alpha1.MachineDeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels, MatchExpressions: expressions},
			Template: machineTemplate,
		},
	}
	big.Name = "largest"
	big.Spec.Template.Labels = labels
	return big
}

// diffObjects returns the paths and values that only the stored object has (added), and the paths of sent values that
// the stored object does not have or has changed (lost). diffObjects ignores metadata that the API server adds to every
// object. A null value equals an absent value.
func diffObjects(path string, sent, stored any) (added, lost []string) {
	if list, isList := sent.([]any); isList {
		have, _ := stored.([]any)
		if len(list) != len(have) {
			return nil, []string{fmt.Sprintf("%s: sent %d items, stored %d", path, len(list), len(have))}
		}
		for i := range list {
			a, l := diffObjects(fmt.Sprintf("%s[%d]", path, i), list[i], have[i])
			added, lost = append(added, a...), append(lost, l...)
		}
		return added, lost
	}
	was, isMap := sent.(map[string]any)
	is, stillMap := stored.(map[string]any)
	if !isMap || !stillMap {
		if fmt.Sprint(sent) != fmt.Sprint(stored) {
			lost = append(lost, fmt.Sprintf("%s: sent %v, stored %v", path, sent, stored))
		}
		return added, lost
	}
	for key, value := range is {
		at := strings.TrimPrefix(path+"."+key, ".")
		before, ok := was[key]
		switch {
		case path == "metadata" && !ok, before == nil && value == nil:
		case before == nil && at != "metadata.creationTimestamp":
			text, _ := json.Marshal(value)
			added = append(added, at+"="+string(text))
		case before != nil:
			a, l := diffObjects(at, before, value)
			added, lost = append(added, a...), append(lost, l...)
		}
	}
	for key, value := range was {
		if _, ok := is[key]; !ok && value != nil {
			lost = append(lost, strings.TrimPrefix(path+"."+key, ".")+": sent, not stored")
		}
	}
	slices.Sort(added)
	return added, lost
}

func yamlFiles(t *testing.T, dir string) []string {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	require.NoError(t, err)
	return files
}

func readFile(t *testing.T, file string) []byte {
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	return content
}

func parseYAML(t *testing.T, text []byte) map[string]any {
	var object map[string]any
	require.NoError(t, yaml.Unmarshal(text, &object))
	return object
}

// kindsByPlural maps each plural resource name to its kind.
var kindsByPlural = map[string]string{
	"machines":           "Machine",
	"machinesets":        "MachineSet",
	"machinedeployments": "MachineDeployment",
	"machineclasses":     "MachineClass",
	"rolloutpolicies":    "RolloutPolicy",
}

// readResourceAndName returns the plural name of an object's kind, and the object's name.
func readResourceAndName(text []byte) (plural, name string, err error) {
	var object metav1.PartialObjectMetadata
	if err := yaml.Unmarshal(text, &object); err != nil {
		return "", "", fmt.Errorf("read kind: %w", err)
	}
	for plural, kind := range kindsByPlural {
		if kind == object.Kind {
			return plural, object.Name, nil
		}
	}
	return "", "", fmt.Errorf("read kind: %q is none of ours", object.Kind)
}
