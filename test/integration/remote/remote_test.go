// Tier: test-all. The processes of this package have flags that the other packages do not use.

//go:build integration

// Package remote tests that separate processes can serve a provider, and that only these processes call the cloud. The
// core worker of this stack does not poll the provider's task queue. The only Secrets that the core worker may read are
// the bootstrap tokens that it creates. The bridge watches only the metadata of Secrets, but RBAC cannot limit a
// permission to the metadata.
package remote

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/devstack/virtualcloud/admin"
	"millwright/starter/kubecli"
	"millwright/starter/providers"
	"millwright/test/integration/rig"
)

const namespace = "remote"

var testRig *rig.Rig

// maxCallsPerSecond is the maximum number of calls per second that both workers of the provider together start.
const maxCallsPerSecond = 4

func TestMain(m *testing.M) {
	limit := fmt.Sprintf("--max-cloud-calls-per-second=%d", maxCallsPerSecond)
	options := stack.Options{
		Components: append(component.Names(), providerWorkers()...),
		Args: map[string][]string{
			component.Worker:         {"--queues=machines,kubernetes", "--guard-secrets=false", "--virtualcloud-address="},
			component.Bridge:         {"--guard-secrets=false"},
			component.ProviderWorker: {limit},
			// the second worker gets the flags of the provider's first worker, because it runs in the stack's directory
			component.SecondWorker: {
				limit,
				"--queues=provider-virtual",
				"--kubeconfig=" + component.StackFolder("").KubeconfigFile(component.ProviderIdentity),
			},
		},
	}
	os.Exit(rig.Main(m, options, func(up *rig.Rig) { testRig = up }))
}

// providerWorkers returns the processes that poll the provider's task queue.
func providerWorkers() []string { return []string{component.ProviderWorker, component.SecondWorker} }

// revokeSecretRights removes every right on Secrets from the core worker's role, and allows the provider's worker to
// get Secrets. In the stack, the provider's worker has only the role without access to Secrets.
func revokeSecretRights(t *testing.T) {
	t.Helper()
	roles := testRig.Kube.RbacV1().ClusterRoles()
	role, err := roles.Get(t.Context(), component.WorkerIdentity, metav1.GetOptions{})
	require.NoError(t, err)
	var rules []rbacv1.PolicyRule
	for _, rule := range role.Rules {
		if rule.Resources[0] != "secrets" {
			rules = append(rules, rule)
		}
	}
	require.Less(t, len(rules), len(role.Rules))
	role.Rules = rules
	_, err = roles.Update(t.Context(), role, metav1.UpdateOptions{})
	require.NoError(t, err)

	testRig.LimitSecretReaders(t, component.ProviderIdentity)
}

func isAllowed(t *testing.T, user, verb, resource string) bool {
	t.Helper()
	group := ""
	if resource == "machines" {
		group = v1alpha1.GroupName
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb:      verb,
			Group:     group,
			Resource:  resource,
			Namespace: namespace,
		},
	}}
	answer, err := testRig.Kube.AuthorizationV1().
		SubjectAccessReviews().
		Create(t.Context(), review, metav1.CreateOptions{})
	require.NoError(t, err)
	return answer.Status.Allowed
}

func TestOnlyTheProvidersWorkerHasTheCredentials(t *testing.T) {
	revokeSecretRights(t)
	rig.Eventually(t, "the core worker may read no Secret, the provider's may", func() (bool, any) {
		core := isAllowed(t, component.WorkerIdentity, "get", "secrets") ||
			isAllowed(t, component.WorkerIdentity, "list", "secrets")
		return !core && isAllowed(t, component.ProviderIdentity, "get", "secrets"), core
	})
	for _, verb := range []string{"create", "patch", "delete", "update"} {
		require.False(
			t,
			isAllowed(t, component.ProviderIdentity, verb, "machines"),
			"the provider's worker may %s machines",
			verb,
		)
	}
	testRig.CreateNamespace(t, namespace, `{"region":"eu","zone":"eu-1","instanceType":"small","initialize":true}`)
	p := testRig.CreatePool(t, namespace, namespace, 5)
	p.AwaitRunningMachines(t, 5)
	testClassChecks(t)

	testSharedRateLimit(t)

	// Without the provider's workers, no instance is created, deleted or lost.
	for _, name := range providerWorkers() {
		require.NoError(t, testRig.Stack.StopComponent(t.Context(), name))
	}
	p.Scale(t, 6)
	rig.Eventually(t, "the sixth waits", func() (bool, any) {
		for _, m := range p.Machines(t) {
			if o := m.Status.CurrentOperation; o != nil && o.Step == "create-instance" {
				return true, nil
			}
		}
		return false, p.Machines(t)
	})
	require.Len(t, p.ProviderIDs(t), 5)
	_, err := runProviderCommand(t, "check", namespace+"/small")
	require.ErrorContains(t, err, "does one run with --queues=provider-virtual?")
	for _, name := range providerWorkers() {
		require.NoError(t, testRig.Stack.StartComponent(t.Context(), name))
	}
	p.AwaitRunningMachines(t, 6)

	p.Delete(t)
	p.AwaitPoolGone(t)
}

// testSharedRateLimit makes machines with both workers. The creation times of the instances show that both workers
// together keep the limit of one worker. If each worker had its own limit, the creations would take half the time.
func testSharedRateLimit(t *testing.T) {
	const many, name = 64, "hurry" // several workers have open polls, and the server answers the oldest polls first
	before := map[string]float64{}
	for _, worker := range providerWorkers() {
		before[worker] = testRig.ReadMetric(t, worker, "millwright_provider_calls_total")
	}
	testRig.CreateNamespace(t, name, "")
	p := testRig.CreatePool(t, name, name, many)
	p.AwaitRunningMachines(t, many)
	for _, worker := range providerWorkers() {
		calls := testRig.ReadMetric(t, worker, "millwright_provider_calls_total") - before[worker]
		t.Logf("%s made %v calls", worker, calls)
		require.Positive(t, calls, worker)
	}
	all, err := testRig.Cloud.Instances(t.Context())
	require.NoError(t, err)
	var made []time.Time
	for _, i := range all {
		if i.Tags.Class == name+"/small" {
			made = append(made, i.Created)
		}
	}
	require.Len(t, made, many)
	slices.SortFunc(made, time.Time.Compare)
	took := made[many-1].Sub(made[0])
	t.Logf("%d instances were made within %s", many, took)
	// After a burst of 4 calls, the creations take 15 s if both workers share one limit, and 7.5 s if each worker has
	// its own limit. On a busy computer the first call may be late, which makes the measured time shorter.
	require.Greater(t, took, 10*time.Second)
	p.Delete(t)
	p.AwaitPoolGone(t)
}

// runProviderCommand runs millwright provider, and returns its output.
func runProviderCommand(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	c := providers.Command(kubecli.NewEnvironment())
	var out bytes.Buffer
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetOut(&out)
	c.SetArgs(
		append(
			arguments,
			"--kubeconfig",
			testRig.Stack.KubeconfigPath(component.TestIdentity),
			"--temporal-address",
			testRig.Stack.TemporalAddress(),
			"--cluster-name",
			string(rig.Installation),
		),
	)
	err := c.ExecuteContext(t.Context())
	t.Logf("millwright provider %s\n%s%v", strings.Join(arguments, " "), &out, err)
	return out.String(), err
}

// testClassChecks runs the check whether the provider's worker can use the class. The check fails only if the cloud
// rejects the class's credentials or the class's Secret is missing.
func testClassChecks(t *testing.T) {
	t.Helper()
	said, err := runProviderCommand(t, "check", namespace+"/small")
	require.NoError(t, err)
	require.Contains(t, said, "can use class remote/small: the cloud lists 5 instances")
	said, err = runProviderCommand(t, "list", "-n", namespace)
	require.NoError(t, err)
	require.Regexp(t, `remote +small +virtual +2 +5 +-`, said)

	before, err := testRig.Cloud.Behaviour(t.Context())
	require.NoError(t, err)
	require.NoError(
		t,
		testRig.Cloud.ChangeBehaviour(t.Context(), func(b *admin.Behaviour) { b.AcceptedTokens = []string{"another"} }),
	)
	_, err = runProviderCommand(t, "check", namespace+"/small")
	require.ErrorContains(t, err, "(Unauthenticated)")
	require.NotContains(t, err.Error(), rig.CanaryToken)
	require.NoError(t, testRig.Cloud.SetBehaviour(t.Context(), before))

	other := rig.NewClass(namespace, "")
	other.Name, other.SecretRef.Name = "other", "none"
	_, err = testRig.MachineClient.MachineV1alpha1().
		MachineClasses(namespace).
		Create(t.Context(), other, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = runProviderCommand(t, "check", namespace+"/other")
	require.ErrorContains(t, err, "Secret remote/none of MachineClass other does not exist (SecretNotFound)")
}
