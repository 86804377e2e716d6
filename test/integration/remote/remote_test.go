// Tier: test-all. It is a variant of flags.

//go:build integration

// Package remote shows that a provider can be served by processes of its own, which alone call the cloud: the core
// worker of this stack has neither the provider's queue nor the right to look at any Secret but the bootstrap tokens it
// makes. The bridge watches the metadata of Secrets, which RBAC cannot tell from what is in them.
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

var r *rig.Rig

// rate is the maximum number of calls that both workers of the provider together begin in a second.
const rate = 4

func TestMain(m *testing.M) {
	limit := fmt.Sprintf("--max-cloud-calls-per-second=%d", rate)
	options := stack.Options{
		Components: append(component.Names(), providersWorkers()...),
		Args: map[string][]string{
			component.Worker:         {"--queues=machines,kubernetes", "--guard-secrets=false", "--virtualcloud-address="},
			component.Bridge:         {"--guard-secrets=false"},
			component.ProviderWorker: {limit},
			component.SecondWorker: { // as the first one: it starts in the stack's folder
				limit, "--queues=provider-virtual", "--kubeconfig=" + component.Layout("").Kubeconfig(component.ProviderIdentity),
			},
		},
	}
	os.Exit(rig.Main(m, options, func(up *rig.Rig) { r = up }))
}

// providersWorkers are the processes that serve the provider's queue.
func providersWorkers() []string { return []string{component.ProviderWorker, component.SecondWorker} }

// withoutSecrets takes every right on Secrets from the core worker's role, and lets the provider's worker get them: in
// the stack it has only the role that reads no Secrets.
func withoutSecrets(t *testing.T) {
	t.Helper()
	roles := r.Kube.RbacV1().ClusterRoles()
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

	r.ReadSecrets(t, component.ProviderIdentity)
}

func may(t *testing.T, user, verb, resource string) bool {
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
	answer, err := r.Kube.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
	require.NoError(t, err)
	return answer.Status.Allowed
}

func TestTheProvidersWorkerAloneHasTheCredentials(t *testing.T) {
	withoutSecrets(t)
	rig.Eventually(t, "the core worker may read no Secret, the provider's may", func() (bool, any) {
		core := may(t, component.WorkerIdentity, "get", "secrets") || may(t, component.WorkerIdentity, "list", "secrets")
		return !core && may(t, component.ProviderIdentity, "get", "secrets"), core
	})
	for _, verb := range []string{"create", "patch", "delete", "update"} {
		require.False(t, may(t, component.ProviderIdentity, verb, "machines"), "the provider's worker may %s machines", verb)
	}
	r.Namespace(t, namespace, `{"region":"eu","zone":"eu-1","instanceType":"small","initialize":true}`)
	p := r.Pool(t, namespace, namespace, 5)
	p.AwaitRunning(t, 5)
	checksOfAClass(t)

	theLimitHoldsForBothTogether(t)

	// Without the provider's workers nothing is made or removed; nothing is lost either.
	for _, name := range providersWorkers() {
		require.NoError(t, r.Stack.Stop(t.Context(), name))
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
	require.Len(t, p.Instances(t), 5)
	_, err := provider(t, "check", namespace+"/small")
	require.ErrorContains(t, err, "does one run with --queues=provider-virtual?")
	for _, name := range providersWorkers() {
		require.NoError(t, r.Stack.Start(t.Context(), name))
	}
	p.AwaitRunning(t, 6)

	p.Delete(t)
	p.AwaitGone(t)
}

// theLimitHoldsForBothTogether makes machines with both workers. The cloud's own times show that they began no more
// calls than one of them may. With a limit for each worker the instances would be made in half the time.
func theLimitHoldsForBothTogether(t *testing.T) {
	const many, name = 64, "hurry" // more than one worker has open polls: the server answers those that are open longest
	before := map[string]float64{}
	for _, worker := range providersWorkers() {
		before[worker] = r.Metric(t, worker, "millwright_provider_calls_total")
	}
	r.Namespace(t, name, "")
	p := r.Pool(t, name, name, many)
	p.AwaitRunning(t, many)
	for _, worker := range providersWorkers() {
		calls := r.Metric(t, worker, "millwright_provider_calls_total") - before[worker]
		t.Logf("%s made %v calls", worker, calls)
		require.Positive(t, calls, worker)
	}
	all, err := r.Cloud.Instances(t.Context())
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
	// 15 s with one limit for both, 7.5 s with one for each, after a burst of 4. On a busy machine the first call may
	// be late, which makes it less.
	require.Greater(t, took, 10*time.Second)
	p.Delete(t)
	p.AwaitGone(t)
}

// provider runs millwright provider, and returns what it prints.
func provider(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	c := providers.Command(kubecli.NewEnvironment())
	var out bytes.Buffer
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetOut(&out)
	c.SetArgs(
		append(
			arguments,
			"--kubeconfig",
			r.Stack.Kubeconfig(component.Test),
			"--temporal-address",
			r.Stack.TemporalAddress(),
			"--cluster-name",
			string(rig.Installation),
		),
	)
	err := c.ExecuteContext(t.Context())
	t.Logf("millwright provider %s\n%s%v", strings.Join(arguments, " "), &out, err)
	return out.String(), err
}

// checksOfAClass asks the provider's worker whether it can use the class, which it can, and cannot when its credentials
// are refused or its Secret is away.
func checksOfAClass(t *testing.T) {
	t.Helper()
	said, err := provider(t, "check", namespace+"/small")
	require.NoError(t, err)
	require.Contains(t, said, "can use class remote/small: the cloud lists 5 instances")
	said, err = provider(t, "list", "-n", namespace)
	require.NoError(t, err)
	require.Regexp(t, `remote +small +virtual +2 +5 +-`, said)

	before, err := r.Cloud.Behaviour(t.Context())
	require.NoError(t, err)
	require.NoError(t, r.Cloud.Change(t.Context(), func(b *admin.Behaviour) { b.Tokens = []string{"another"} }))
	_, err = provider(t, "check", namespace+"/small")
	require.ErrorContains(t, err, "(Unauthenticated)")
	require.NotContains(t, err.Error(), rig.Canary)
	require.NoError(t, r.Cloud.SetBehaviour(t.Context(), before))

	other := rig.Class(namespace, "")
	other.Name, other.SecretRef.Name = "other", "none"
	_, err = r.Machines.MachineV1alpha1().MachineClasses(namespace).Create(t.Context(), other, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = provider(t, "check", namespace+"/other")
	require.ErrorContains(t, err, "Secret remote/none of MachineClass other does not exist (SecretNotFound)")
}
