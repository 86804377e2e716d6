//go:build integration

package explain

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/devstack/build"
	"millwright/devstack/virtualcloud/admin"
	"millwright/test/integration/rig"
)

// Two commands explain a blocked machine: millwright top prints names that are arguments of millwright explain. The
// JSON output of explain has the sentence of the status and its parts.
func TestBlockedMachineIsExplainedAsJSON(t *testing.T) {
	require.NoError(
		t,
		testRig.Cloud.ChangeBehaviour(t.Context(), func(b *admin.Behaviour) { b.AcceptedTokens = []string{rig.CanaryToken} }),
	)
	p := newPool(t, "fields", "", 0)
	setCloudToken(t, p.Namespace, "wrong")
	p.Scale(t, 2)
	rig.Eventually(t, "both machines are blocked", func() (bool, any) {
		d := p.Deployment(t)
		return blockedCondition(d) != nil &&
			strings.HasPrefix(blockedCondition(d).Message, "2 of 2 machines wait for their instances"), d.Status
	})
	names := testRig.RunMillwright(t, "top", "-n", p.Namespace, "--blocked", "-o", "name")
	require.Contains(t, names, "mcd/fields/fields")
	ofMachine := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, "mc/fields/") })
	require.GreaterOrEqual(t, ofMachine, 0, names)
	var said struct {
		Sentence, Command string
		Blocked, Unseen   bool
		Commands          []string
		Counts            struct{ Desired, Machines, Waiting, Blocked int }
		Machines          []struct{ Name, What, Why, Command string }
	}
	explained := func(name string) {
		t.Helper()
		require.NoError(
			t,
			json.Unmarshal([]byte(strings.Join(testRig.RunMillwright(t, "explain", name, "-o", "json"), "\n")), &said),
		)
	}
	explained("mcd/fields/fields")
	require.Equal(t, p.Deployment(t).Status.CurrentOperation.WaitsFor, said.Sentence)
	require.True(t, said.Blocked)
	require.False(t, said.Unseen)
	require.Equal(t, []string{"kubectl edit secret -n fields small"}, said.Commands)
	require.Equal(
		t,
		[]int{2, 2, 2, 2},
		[]int{said.Counts.Desired, said.Counts.Machines, said.Counts.Waiting, said.Counts.Blocked},
	)
	require.Len(t, said.Machines, 2)
	for _, m := range said.Machines {
		require.Equal(t, []string{"waits for its instance", said.Commands[0]}, []string{m.What, m.Command})
		require.Contains(t, said.Sentence, m.Why)
	}
	explained(names[ofMachine])
	require.Equal(t, "kubectl edit secret -n fields small", said.Command)
	setCloudToken(t, p.Namespace, rig.CanaryToken)
	p.AwaitRunningMachines(t, 2)
	p.Delete(t)
}

// A worker polls the queue of the class's provider, so the class has the condition Served.
func TestServedClassHasTheConditionServed(t *testing.T) {
	testRig.CreateNamespace(t, "served", "")
	_, err := testRig.Stack.RunKubectl(
		t.Context(),
		"wait",
		"machineclass/small",
		"-n",
		"served",
		"--for=condition=Served",
		"--timeout=30s",
	)
	require.NoError(t, err)
	class, err := testRig.MachineClient.MachineV1alpha1().
		MachineClasses("served").
		Get(t.Context(), "small", metav1.GetOptions{})
	require.NoError(t, err)
	c := meta.FindStatusCondition(class.Status.Conditions, v1alpha1.ClassServed)
	require.Equal(t, []string{"WorkerPolls", "a worker serves provider virtual"}, []string{c.Reason, c.Message})
}

// The script kubectl in the stack's folder finds the plugin millwright, and the plugin finds the cluster.
func TestKubectlRunsThePlugin(t *testing.T) {
	repo, err := build.FindRepo("")
	require.NoError(t, err)
	paths, err := build.Products(t.Context(), repo, os.Stderr, build.StarterFolder)
	require.NoError(t, err)
	folder := t.TempDir()
	require.NoError(t, os.Symlink(paths[build.StarterFolder], filepath.Join(folder, "kubectl-millwright")))
	for _, row := range []struct {
		arguments []string
		says      string
	}{
		{[]string{"millwright", "--version"}, "kubectl millwright version "},
		{[]string{"millwright", "heartbeats"}, "a worker and a bridge are at work"},
		{[]string{"config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"}, testRig.Stack.APIServerURL()},
	} {
		kubectl := exec.CommandContext(t.Context(), testRig.Stack.KubectlPath(), row.arguments...)
		kubectl.Env = append(
			os.Environ(),
			"PATH="+folder+string(filepath.ListSeparator)+os.Getenv("PATH"),
			"KUBECONFIG="+os.DevNull,
		)
		out, err := kubectl.CombinedOutput()
		require.NoError(t, err, "kubectl %v: %s", row.arguments, out)
		require.Contains(t, string(out), row.says)
	}
}
