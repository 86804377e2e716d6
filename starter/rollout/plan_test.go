package rollout

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
)

func TestPlanListsStepsAndMinimumDuration(t *testing.T) {
	out, err := poolWithoutNewSet(
		withSurgeAndUnavailable(intstr.FromInt32(2), intstr.FromInt32(0)),
	).runCommand(t, "plan", "shop/web", "--create=2s", "--delete=1s")
	require.NoError(t, err)
	assert.Equal(t, strings.TrimPrefix(`
#   web-a   (new)   STEP
-   3       0       as it is now
1   3       2       create a set of 2 machines for revision 7: the template has none
2   1       2       resize set web-a 3→1: 5 available, 3 needed
3   1       3       resize set (new) 2→3: room for 2 machines, 3 wanted
4   0       3       resize set web-a 1→0: 4 available, 3 needed
With 2s until a machine is available and 1s until one is gone, the rollout takes at least 6s.
`, "\n"), out)
}

func TestPlanOfACompleteRollout(t *testing.T) {
	out, err := completedPool().runCommand(t, "plan", "shop/web", "--create=2s", "--delete=1s")
	require.NoError(t, err)
	assert.Equal(
		t,
		"shop/web: nothing to do: 3 wanted, 3 up to date, 3 ready, 3 available.\nWith 2s until a machine is available and 1s until one is gone, the rollout takes at least 0s.\n",
		out,
	)
}

func TestPlanWithOtherReplicas(t *testing.T) {
	for replicas, want := range map[string]string{
		"5": "1   5       resize set web-b 3→5: room for 3 machines, 5 wanted\n",
		"0": "1   0       resize set web-b 3→0: 0 wanted in all\n",
	} {
		out, err := completedPool().runCommand(t, "plan", "shop/web", "--replicas="+replicas)
		require.NoError(t, err)
		assert.Contains(t, out, want)
	}
}

func TestPlanIgnoresPauseAndHold(t *testing.T) {
	steps, err := waitingPool().runCommand(t, "plan", "shop/web")
	require.NoError(t, err)
	for note, p := range map[string]*pool{
		"It is paused: these steps follow when it resumes.\n":                         waitingPool(setPaused),
		"It is held by ann (the image is bad): these steps follow when it resumes.\n": waitingPool(withAnnotation(v1alpha1.AnnotationRolloutHold, "7 ann: the image is bad")),
	} {
		out, err := p.runCommand(t, "plan", "shop/web")
		require.NoError(t, err)
		assert.Equal(t, note+steps, out)
	}
	out, err := waitingPool(
		withProgressDeadline(600),
	).addPolicy(policyWithRollbackAtDeadline).
		runCommand(t, "plan", "shop/web")
	require.NoError(t, err)
	assert.Equal(t, "RolloutPolicy careful applies.\n"+steps, out, "it gives up, and the plan does not")
	for want, p := range map[string]*pool{
		"shop/web: it is being deleted; sets left: 2.\n":                                waitingPool(markDeleted),
		"shop/web: nothing can be done with it: the template names no machine class.\n": waitingPool(removeClass),
	} {
		out, err := p.runCommand(t, "plan", "shop/web")
		require.NoError(t, err)
		assert.Equal(t, want, out)
	}
}

func TestPlanOfAnUndo(t *testing.T) {
	out, err := waitingPool(withRollbackRequest(0)).runCommand(t, "plan", "shop/web")
	require.NoError(t, err)
	assert.Equal(t, strings.TrimPrefix(`
An undo comes first: return to revision 6, set web-a.
#   web-a   web-b   STEP
-   1       2       as it is now
1   2       2       resize set web-a 1→2: room for 1 machine, 3 wanted
2   2       1       resize set web-b 2→1: 4 available, 3 needed
3   3       1       resize set web-a 2→3: room for 1 machine, 3 wanted
4   3       0       resize set web-b 1→0: 4 available, 3 needed
`, "\n"), out)
	out, err = completedPool(withRollbackRequest(9), setPaused).runCommand(t, "plan", "shop/web")
	require.NoError(t, err)
	assert.Equal(t, strings.TrimPrefix(`
It is paused: these steps follow when it resumes.
An undo comes first: there is no set of revision 9 to return to.
shop/web: nothing to do: 3 wanted, 3 up to date, 3 ready, 3 available.
`, "\n"), out)
}

func TestPlanExplainsWhyItEndsEarly(t *testing.T) {
	for want, p := range map[string]*pool{
		"The plan ends here: old machines stay until somebody deletes them.\n":     poolWithoutNewSet(withStrategy(v1alpha1.OnDeleteMachineDeploymentStrategyType)),
		"The plan ends here, because nodes were not read (--target-kubeconfig).\n": inPlacePool(v1alpha1.OrchestrationTypeAuto),
	} {
		out, err := p.runCommand(t, "plan", "shop/web")
		require.NoError(t, err)
		assert.True(t, strings.HasSuffix(out, want), out)
	}
	out, err := inPlacePool(
		v1alpha1.OrchestrationTypeManual,
	).runCommand(t, "plan", "shop/web", "--target-kubeconfig=nodes.yaml")
	require.NoError(t, err)
	assert.Contains(t, out, "The plan ends here: a person selects the nodes.\n")
}

func TestPlanRefusesInvalidFlags(t *testing.T) {
	for args, message := range map[string]string{
		"--create=2s":              "--create or --delete alone does not say how long a rollout takes: give both",
		"--delete=2s":              "--create or --delete alone does not say how long a rollout takes: give both",
		"--create=-2s --delete=1s": "--create and --delete must not be negative",
		"--create=2s --delete=-1s": "--create and --delete must not be negative",
		"--replicas=-1":            "--replicas -1 is negative",
		"-f nowhere.yaml":          "read objects: open nowhere.yaml: no such file or directory",
	} {
		_, err := completedPool().runCommand(t, append([]string{"plan", "shop/web"}, strings.Fields(args)...)...)
		assert.EqualError(t, err, message, args)
	}
}

// writeTempFile writes a file with this text, and returns the path.
func writeTempFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pool.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

const poolManifest = `# what people apply
apiVersion: v1
kind: Secret
metadata: {name: web, namespace: shop}
---
apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineDeployment
metadata: {name: other, namespace: shop}
spec: {replicas: 9}
---
apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineDeployment
metadata: {name: web, namespace: elsewhere}
spec: {replicas: 9}
---
apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineDeployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {class: {kind: MachineClass, name: huge}}
`

func TestPlanWithFile(t *testing.T) {
	out, err := completedPool().runCommand(t, "plan", "shop/web", "-f", writeTempFile(t, poolManifest))
	require.NoError(t, err)
	assert.Contains(t, out, "-   3       0       as it is now\n", "replicas that are left out stay")
	assert.Contains(t, out, "create a set of 1 machine for revision 8: the template has none\n")
	assert.NotContains(t, out, "9")
	out, err = completedPool().runCommand(t, "plan", "shop/web", "-f", writeTempFile(t, strings.Replace(poolManifest, "spec:\n", "spec:\n  replicas: 1\n", 1)))
	require.NoError(t, err)
	assert.Contains(t, out, "3→")
	same, err := completedPool().runCommand(t, "plan", "shop/web", "-f", writeTempFile(t, strings.Replace(poolManifest, "huge", "large", 1)))
	require.NoError(t, err)
	assert.Contains(t, same, "nothing to do")
}

// plan uses the policies that the namespace has after the file is applied.
func TestPlanWithPoliciesFromFile(t *testing.T) {
	policy := func(name, target string) string {
		return "apiVersion: machine.sapcloud.io/v1alpha1\nkind: RolloutPolicy\nmetadata: {name: " + name +
			", namespace: shop}\n" +
			"spec: {targets: [{name: " + target + "}], steps: [{replicas: 1, approve: true}]}\n---\n"
	}
	for name, row := range map[string]struct{ file, want string }{
		"the present one comes first by name": {policy("late", "web") + poolManifest, "RolloutPolicy careful applies."},
		"another one comes first":             {policy("able", "web") + poolManifest, "RolloutPolicy able applies."},
		"the present one selects no more":     {policy("careful", "other") + policy("late", "web") + poolManifest, "RolloutPolicy late applies."},
		"policies only":                       {policy("able", "web"), "RolloutPolicy able applies."},
	} {
		out, err := completedPool().addPolicy(v1alpha1.RolloutPolicySpec{}).
			runCommand(t, "plan", "shop/web", "-f", writeTempFile(t, row.file))
		require.NoError(t, err, name)
		assert.Contains(t, out, row.want, name)
	}
	out, err := completedPool().addPolicy(v1alpha1.RolloutPolicySpec{}).
		runCommand(t, "plan", "shop/web", "-f", writeTempFile(t, policy("careful", "other")+poolManifest))
	require.NoError(t, err)
	assert.NotContains(t, out, "RolloutPolicy")
}

func TestPlanRefusesFileWithoutTheDeployment(t *testing.T) {
	for name, c := range map[string]struct{ text, message string }{
		"another":      {strings.Replace(poolManifest, "{name: web}", "{name: webb}", 1), "holds no MachineDeployment shop/web"},
		"another kind": {strings.ReplaceAll(poolManifest, "machine.sapcloud.io", "cluster.x-k8s.io"), "holds no MachineDeployment shop/web"},
		"empty":        {"", "holds no MachineDeployment shop/web"},
		"twice":        {poolManifest + "---\n" + poolManifest, "holds MachineDeployment shop/web twice"},
		"a slip":       {strings.Replace(poolManifest, "selector:", "selektor:", 1), `unknown field "selektor"`},
		"no YAML":      {"a: [", "did not find expected node content"},
	} {
		_, err := completedPool().runCommand(t, "plan", "shop/web", "-f", writeTempFile(t, c.text))
		assert.ErrorContains(t, err, c.message, name)
	}
}
