// Tier: test. What the API server answers is the first thing that users meet.

//go:build integration

// Package admission asks a real API server one question: which objects of machine.sapcloud.io does it take, and what
// does it answer to the others? It installs deploy/crds and needs neither bridge nor worker. What controllers do with
// an object that was taken is not its concern.
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

var update = flag.Bool("update", false, "write testdata/bad.golden instead of comparing with it")

func TestAdmission(t *testing.T) {
	api := startAPI(t)
	t.Run("bad objects are refused with an answer that helps", func(t *testing.T) { testBad(t, api) })
	t.Run("bad node templates are refused", func(t *testing.T) { testNodeTemplates(t, api) })
	t.Run("good objects are taken as they are", func(t *testing.T) { testGood(t, api) })
	t.Run("replicas are scaled through the scale subresource", func(t *testing.T) { testScale(t, api) })
	t.Run("status is written through its subresource only", func(t *testing.T) { testStatus(t, api) })
	t.Run("kubectl shows short names and columns", func(t *testing.T) { testTables(t, api) })
}

// separator stands between the answers in the golden file; an answer itself has no empty line.
const separator = "\n\n"

func testBad(t *testing.T, api *api) {
	const golden = "testdata/bad.golden"
	var answers []string
	files := filesIn(t, "testdata/bad")
	require.GreaterOrEqual(t, len(files), 30)
	for _, file := range files {
		_, err := api.create(t.Context(), read(t, file))
		require.Error(t, err, "%s was taken", file)
		answers = append(answers, filepath.Base(file)+"\n"+answer(err))
	}
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(strings.Join(answers, separator)+"\n"), 0o644))
	}
	want := strings.Split(strings.TrimSuffix(string(read(t, golden)), "\n"), separator)
	assert.Len(t, want, len(answers), "run with -update, and read what changed")
	for _, got := range answers {
		if !slices.Contains(want, got) {
			t.Errorf("%s does not hold this answer; run with -update, and read what changed:\n%s", golden, got)
		}
	}
}

// Each field of a node template that is wrong is named, whatever the golden file says.
func testNodeTemplates(t *testing.T, api *api) {
	for name, row := range map[string]struct{ file, field string }{
		"node template with a bad capacity": {"machineclass-capacity-no-quantity.yaml", "nodeTemplate.capacity.cpu"},
		"node template without a region":    {"machineclass-node-template-empty.yaml", "nodeTemplate.region"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := api.create(t.Context(), read(t, filepath.Join("testdata/bad", row.file)))
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			require.Contains(t, answer(err), "  "+row.field+": ")
		})
	}
}

// answer returns what kubectl prints: the causes, one a line, or the message where there are none. Sorted, because the
// API server walks maps and gives causes in no order.
func answer(err error) string {
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

// What the API server writes into a strategy, as compare shows it.
const (
	wholeStrategy = `spec.strategy={"rollingUpdate":{"maxSurge":1,"maxUnavailable":0},"type":"RollingUpdate"}`
	strategyType  = `spec.strategy.type="RollingUpdate"`
)

// addedByDefaults tells, per file, what the API server writes where its user left something out. Files that are not
// here are stored as they were sent.
var addedByDefaults = map[string][]string{
	"machineset-minimal.yaml":                    {"spec.replicas=0"},
	"machinedeployment-all-optional-absent.yaml": {"spec.replicas=0", wholeStrategy},
	"machinedeployment-nullable-fields.yaml":     {wholeStrategy},
	"machinedeployment-strategy-null.yaml":       {wholeStrategy},
	"machinedeployment-strategy-empty.yaml":      {strategyType},
	"machinedeployment-strategy-rolling-empty-block.yaml": {
		"spec.strategy.rollingUpdate.maxSurge=1", "spec.strategy.rollingUpdate.maxUnavailable=0", strategyType,
	},
	"machinedeployment-strategy-recreate-with-other-blocks.yaml": {
		"spec.strategy.inPlaceUpdate.maxSurge=1", "spec.strategy.inPlaceUpdate.maxUnavailable=0",
	},
	"machinedeployment-surge-above-hundred-percent.yaml": {strategyType},
	"machinedeployment-in-place-manual.yaml": {
		"spec.strategy.inPlaceUpdate.maxSurge=1", "spec.strategy.inPlaceUpdate.maxUnavailable=0",
	},
}

func testGood(t *testing.T, api *api) {
	files := filesIn(t, "testdata/good")
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			sent := read(t, file)
			stored, err := api.create(t.Context(), sent)
			require.NoError(t, err)

			added, lost := compare("", parse(t, sent), parse(t, stored))
			assert.Empty(t, lost, "the API server dropped or changed what was sent")
			assert.Equal(t, addedByDefaults[filepath.Base(file)], added)

			// The same object once more, as kubectl apply does: what was taken must be taken again.
			require.NoError(t, api.update(t.Context(), stored))
		})
	}
	for file := range addedByDefaults {
		assert.FileExists(t, filepath.Join("testdata/good", file))
	}
	t.Run("an object at all bounds is within the cost of the rules", func(t *testing.T) {
		text, err := json.Marshal(largest())
		require.NoError(t, err)
		_, err = api.create(t.Context(), text)
		require.NoError(t, err)
	})
	t.Run("typed clients can read them all", func(t *testing.T) {
		client := api.typed.MachineV1alpha1()
		_, err := client.Machines(namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		_, err = client.MachineSets(namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		_, err = client.MachineDeployments(namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		_, err = client.MachineClasses(namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
	})
}

// largest returns a deployment whose maps and lists are as long as its CRD allows.
func largest() *v1alpha1.MachineDeployment {
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
			Template: template,
		},
	}
	big.Name = "largest"
	big.Spec.Template.Labels = labels
	return big
}

// compare returns the paths that only stored has, with their values, and those at which stored lacks or changed what
// was sent. What the API server adds to the metadata of every object is left out, and null equals absent.
func compare(path string, sent, stored any) (added, lost []string) {
	if list, isList := sent.([]any); isList {
		have, _ := stored.([]any)
		if len(list) != len(have) {
			return nil, []string{fmt.Sprintf("%s: sent %d items, stored %d", path, len(list), len(have))}
		}
		for i := range list {
			a, l := compare(fmt.Sprintf("%s[%d]", path, i), list[i], have[i])
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
			a, l := compare(at, before, value)
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

func filesIn(t *testing.T, dir string) []string {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	require.NoError(t, err)
	return files
}

func read(t *testing.T, file string) []byte {
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	return content
}

func parse(t *testing.T, text []byte) map[string]any {
	var object map[string]any
	require.NoError(t, yaml.Unmarshal(text, &object))
	return object
}

// kinds holds the kind of each plural name.
var kinds = map[string]string{
	"machines":           "Machine",
	"machinesets":        "MachineSet",
	"machinedeployments": "MachineDeployment",
	"machineclasses":     "MachineClass",
	"rolloutpolicies":    "RolloutPolicy",
}

// identify returns the plural name of an object's kind, and its name.
func identify(text []byte) (plural, name string, err error) {
	var object metav1.PartialObjectMetadata
	if err := yaml.Unmarshal(text, &object); err != nil {
		return "", "", fmt.Errorf("read kind: %w", err)
	}
	for plural, kind := range kinds {
		if kind == object.Kind {
			return plural, object.Name, nil
		}
	}
	return "", "", fmt.Errorf("read kind: %q is none of ours", object.Kind)
}
