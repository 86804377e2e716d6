//go:build integration

package rollouts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"millwright/api/v1alpha1"
)

// runRolloutCommand runs millwright rollout, requires its success, and returns the lines that it prints.
func runRolloutCommand(t *testing.T, arguments ...string) []string {
	t.Helper()
	return testRig.RunMillwright(t, append([]string{"rollout"}, arguments...)...)
}

// A user replaces all machines of a deployment and rolls this change back. The user only uses the command line.
func TestRolloutFromTheCommandLine(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "typed", 3, withRollingUpdate(1, 0))
	former, before := f.machineNames(t), f.Deployment(t)
	watch := f.startBoundsSampler(t)

	steps := runRolloutCommand(t, "plan", "typed/typed", "-f", f.writeManifest(t, "2"))
	require.Equal(t, []string{"0", "3"}, strings.Fields(steps[len(steps)-1])[1:3], "sizes after the last step")
	require.Equal(t, before.Generation, f.Deployment(t).Generation, "a plan changes nothing")
	require.Len(t, f.Sets(t), 1)

	runRolloutCommand(t, "start", "typed/typed", "--reason", "new certificates")
	require.NotEmpty(t, f.Deployment(t).Spec.Template.Annotations[v1alpha1.AnnotationRestartedAt])
	seen := runRolloutCommand(t, "watch", "typed/typed", "--interval", "200ms")
	require.Contains(t, seen[len(seen)-1], "typed/typed: revision 2 is complete;")
	f.AwaitRunningMachines(t, 3)
	restarted := f.machineNames(t)
	for _, name := range former {
		require.NotContains(t, restarted, name, "made anew")
	}

	require.Equal(t, f.revisionsOfSets(t), parseHistoryTable(runRolloutCommand(t, "history", "typed/typed")))
	require.Contains(t, f.Deployment(t).Annotations[v1alpha1.AnnotationChangeCause], "new certificates")

	runRolloutCommand(t, "undo", "typed/typed", "--reason", "the old ones were well")
	listed := runRolloutCommand(t, "list", "-n", "typed", "--all", "-o", "name")
	require.Equal(t, []string{"machinedeployment/typed/typed"}, listed)
	waited := runRolloutCommand(t, "status", "mcd", "typed", "-n", "typed", "--wait", "--timeout", "2m")
	require.Contains(t, strings.Join(waited, "\n"), "typed/typed: revision 3 is complete.")
	seen = runRolloutCommand(t, "watch", "typed/typed", "--interval", "200ms")
	require.Contains(t, seen[len(seen)-1], "typed/typed: revision 3 is complete;")
	f.AwaitRunningMachines(t, 3)
	d := f.Deployment(t)
	require.Equal(t, before.Spec.Template, d.Spec.Template, "the template is what it was")
	require.Nil(t, d.Spec.RollbackTo)
	for _, name := range f.machineNames(t) {
		require.NotContains(t, restarted, name)
	}
	require.Equal(t, f.revisionsOfSets(t), parseHistoryTable(runRolloutCommand(t, "history", "typed/typed")))
	watch.requireNoViolations(t)
	f.Delete(t)
	f.AwaitPoolGone(t)
}

// writeManifest writes the deployment with another template to a file, and returns the file's path.
func (f fleet) writeManifest(t *testing.T, edition string) string {
	t.Helper()
	d := f.Deployment(t)
	d.APIVersion, d.Kind = v1alpha1.SchemeGroupVersion.String(), "MachineDeployment"
	d.Spec.Template.Labels["edition"] = edition
	text, err := yaml.Marshal(d)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "pool.yaml")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	return path
}

// revisionsOfSets returns the revision annotation of each MachineSet, by the name of the set.
func (f fleet) revisionsOfSets(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, s := range f.Sets(t) {
		all[s.Name] = s.Annotations[v1alpha1.AnnotationRevision]
	}
	return all
}

// parseHistoryTable returns the revisions in a table of millwright rollout history, by the name of the MachineSet.
func parseHistoryTable(table []string) map[string]string {
	all := map[string]string{}
	for _, row := range table[1:] {
		columns := strings.Fields(row)
		all[columns[2]] = columns[0]
	}
	return all
}
