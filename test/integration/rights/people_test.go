//go:build integration

package rights

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/devstack/component"
	"millwright/test/integration/rig"
)

// The roles for people allow exactly the requests that docs/security.md lists for each user. Admission policies let
// only Millwright write the fields that bind a machine to its instance and node. Millwright still works with these
// policies.
func TestPeopleMayDoWhatTheirRolesSay(t *testing.T) {
	const name = "people"
	testRig.LimitSecretReaders(t, component.ProviderIdentity)
	testRig.CreateNamespace(t, name, "")
	p := testRig.CreatePool(t, name, name, 2)
	p.AwaitRunningMachines(t, 2)
	machine := p.Machines(t)[0].Name
	kubectl := func(arguments ...string) error {
		_, err := testRig.Stack.RunKubectl(context.WithoutCancel(t.Context()), append([]string{"-n", name}, arguments...)...)
		return err
	}
	text, err := os.ReadFile("../../../deploy/components/admission/policies.yaml")
	require.NoError(t, err)
	const account = "system:serviceaccount:millwright:millwright-worker"
	require.Contains(t, string(text), account)
	policies := filepath.Join(t.TempDir(), "policies.yaml")
	own := strings.ReplaceAll(string(text), account, component.WorkerIdentity)
	require.NoError(t, os.WriteFile(policies, []byte(own), 0o600))
	require.NoError(t, kubectl("apply", "-f", "../../../deploy/rbac/people.yaml"))
	require.NoError(t, kubectl("apply", "-f", policies))
	t.Cleanup(func() { assert.NoError(t, kubectl("delete", "-f", policies)) })
	for user, roles := range map[string][]string{
		"eve": {"view"}, "ann": {"view", "approve"}, "ben": {"view", "operate"}, "root": nil,
	} {
		for _, role := range roles {
			require.NoError(t, kubectl("create", "rolebinding", user+"-"+role, "--clusterrole=millwright-"+role, "--user="+user))
		}
	}
	const (
		unbound = "is forbidden: User"
		approve = "you may approve the steps of a rollout, and change nothing else"
		tied    = "only Millwright writes "
	)
	as := func(user string, arguments ...string) error {
		arguments = append(arguments, "--as="+user)
		if user == "root" {
			arguments = append(arguments, "--as-group=system:masters")
		}
		return kubectl(arguments...)
	}
	rig.Eventually(t, "the API server has taken up the policies", func() (bool, any) {
		id := as(
			"root",
			"patch",
			"machine",
			machine,
			"--dry-run=server",
			"--type=merge",
			`-p={"spec":{"providerID":"virtual:///x"}}`,
		)
		words := as("ann", "annotate", "mcd", name, "--dry-run=server", "a=b")
		return id != nil && words != nil && strings.Contains(words.Error(), approve), []error{id, words}
	})
	for _, row := range []struct {
		user      string
		arguments string
		refused   string // part of the error message; empty if the request is allowed
	}{
		{"eve", "get machines,mcd,mcs,mcc", ""},
		{"eve", "annotate mcd people a=b", unbound},
		{"ann", "get machines,mcd,mcs,mcc", ""},
		{"ann", "annotate mcd people " + v1alpha1.AnnotationRolloutApprove + "=1/1", ""},
		{"ann", "annotate mcd people " + v1alpha1.AnnotationRolloutApprove + "-", ""},
		{"ann", "annotate mcd people " + v1alpha1.AnnotationRolloutHold + "=1", approve},
		{"ann", "label mcd people a=b", approve},
		{"ann", `patch mcd people --type=merge -p={"spec":{"paused":true}}`, approve},
		{"ann", `patch mcd people --type=merge -p={"spec":{"replicas":9}}`, approve},
		{"ann", `patch mcd people --type=merge -p={"spec":{"template":{"spec":{"class":{"name":"other"}}}}}`, approve},
		{"ann", `patch mcd people --type=merge -p={"metadata":{"finalizers":null}}`, approve},
		{"ann", "scale mcd people --replicas=9", unbound},
		{"ann", "delete mcd people", unbound},
		{"ann", "annotate machine MACHINE a=b", unbound},
		{"ben", "scale mcd people --replicas=3", ""},
		{"ben", "annotate mcd people a=b", ""},
		{"ben", "annotate machine MACHINE " + v1alpha1.AnnotationPreserve + "=when-failed", ""},
		{"ben", `patch machine MACHINE --type=merge -p={"spec":{"providerID":"virtual:///x"}}`, tied + "spec.providerID"},
		{"ben", `patch machine MACHINE --type=merge -p={"spec":{"providerID":null}}`, tied + "spec.providerID"},
		{"ben", "label machine MACHINE node=other --overwrite", tied + "the label node"},
		{"ben", "label machine MACHINE node-", tied + "the label node"},
		{"ben", "label machine MACHINE tier=front", ""},
		{"ben", `patch machine MACHINE --subresource=status --type=merge -p={"status":{"nodeName":"x"}}`, unbound},
		{"ben", "delete mcd people", unbound},
		{"root", `patch machine MACHINE --subresource=status --type=merge -p={"status":{"nodeName":"x"}}`, tied + "this status"},
		{"root", `patch mcd people --subresource=status --type=merge -p={"status":{"replicas":9}}`, tied + "this status"},
		{"root", `patch machine MACHINE --type=merge -p={"spec":{"providerID":"virtual:///x"}}`, tied + "spec.providerID"},
		{"ben", "delete machine MACHINE --wait=false", ""},
	} {
		t.Run(row.user+" "+row.arguments, func(t *testing.T) {
			err := as(row.user, strings.Fields(strings.ReplaceAll(row.arguments, "MACHINE", machine))...)
			if row.refused == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, row.refused)
			}
		})
	}
	rig.Eventually(t, "the deleted machine is replaced", func() (bool, any) {
		machines := p.Machines(t)
		for _, m := range machines {
			if m.Name == machine {
				return false, machines
			}
		}
		return len(machines) == 3, machines
	})
	p.AwaitRunningMachines(t, 3)
	t.Run("the commands of a rollout", func(t *testing.T) { testCommandsOfPeople(t, p, approve, unbound) })
}

// The commands of millwright need the rights that docs/rights.md lists. With the role for a job, the command succeeds;
// with a smaller role, the API server denies the write.
func testCommandsOfPeople(t *testing.T, p *rig.Pool, onlyApproves, unbound string) {
	step := v1alpha1.RolloutStep{Replicas: intstr.FromInt32(1), Approve: true}
	testRig.CreatePolicy(t, p.Namespace, p.Name, v1alpha1.RolloutPolicySpec{Steps: []v1alpha1.RolloutStep{step}})
	p.Patch(t, `{"spec":{"template":{"metadata":{"labels":{"version":"2"}}}}}`)
	rig.Eventually(t, "the rollout waits for an approval", func() (bool, any) {
		operation := p.Deployment(t).Status.CurrentOperation
		return operation != nil && slices.Contains(operation.BlockedBy, vocabulary.BlockedByMissingApproval), operation
	})
	for _, row := range []struct {
		user, command string
		refused       string // part of the error message; empty if the command succeeds
	}{
		{"eve", "top", ""},
		{"eve", "explain mcd/people", ""},
		{"eve", "rollout status people", ""},
		{"eve", "rollout approve people --reason ok", unbound},
		{"ann", "rollout pause people --reason ok", onlyApproves},
		{"ann", "rollout cancel people --reason ok", onlyApproves},
		{"ann", "rollout undo people --reason ok", onlyApproves},
		{"ann", "preserve " + p.Machines(t)[0].Name, unbound},
		{"ben", "rollout pause people --reason ok", ""},
		{"ann", "rollout resume people --reason ok", onlyApproves},
		{"ben", "rollout resume people --reason ok", ""},
		{"ann", "rollout approve people --steps 1 --reason ok", ""},
	} {
		t.Run(row.user+" "+row.command, func(t *testing.T) {
			_, err := testRig.TryRunMillwrightAs(t, row.user, append(strings.Fields(row.command), "-n", p.Namespace)...)
			if row.refused == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, row.refused)
			}
		})
	}
	rig.Eventually(t, "the approved rollout ends", func() (bool, any) {
		d := p.Deployment(t)
		return d.Status.UpdatedReplicas == 3 && d.Status.AvailableReplicas == 3, d.Status
	})
	t.Run("a reader of one namespace gets notes from doctor", func(t *testing.T) {
		out, err := testRig.TryRunMillwrightAs(t, "eve", "doctor", "--cluster-name", string(rig.Installation))
		require.NoError(t, err)
		require.Contains(t, out, "note    user eve may only read")
	})
}
