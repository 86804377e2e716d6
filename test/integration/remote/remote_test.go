//go:build integration

// Package remote shows that a provider can be served by a process of its own, which alone calls the cloud: the core worker of
// this stack has neither the provider's queue nor the right to look at any Secret but the bootstrap tokens it makes. The
// bridge watches the metadata of Secrets, which RBAC cannot tell from what is in them.
package remote

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/test/integration/rig"
)

const namespace = "remote"

var r *rig.Rig

func TestMain(m *testing.M) {
	options := stack.Options{
		Components: append(component.Names(), component.ProviderWorker),
		Args: map[string][]string{component.Worker: {
			"--queues=machines,kubernetes", "--guard-secrets=false", "--virtualcloud-address=",
		}, component.Bridge: {"--guard-secrets=false"}},
	}
	os.Exit(rig.Main(m, options, func(up *rig.Rig) { r = up }))
}

// withoutSecrets takes every right on Secrets from the core worker's role, and lets the provider's worker get them: in the stack
// it has only the role that reads no Secrets.
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

	const secrets = "millwright-provider-secrets"
	_, err = r.Kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: secrets},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: secrets},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: component.ProviderIdentity}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func may(t *testing.T, user, verb, resource string) bool {
	t.Helper()
	group := ""
	if resource == "machines" {
		group = v1alpha1.GroupName
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource, Namespace: namespace},
	}}
	answer, err := r.Kube.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
	require.NoError(t, err)
	return answer.Status.Allowed
}

func TestTheProvidersWorkerAloneHasTheCredentials(t *testing.T) {
	withoutSecrets(t)
	rig.Eventually(t, 10*time.Second, "the core worker may read no Secret, the provider's may", func() (bool, any) {
		core := may(t, component.WorkerIdentity, "get", "secrets") || may(t, component.WorkerIdentity, "list", "secrets")
		return !core && may(t, component.ProviderIdentity, "get", "secrets"), core
	})
	for _, verb := range []string{"create", "patch", "delete", "update"} {
		require.False(t, may(t, component.ProviderIdentity, verb, "machines"), "the provider's worker may %s machines", verb)
	}
	r.Namespace(t, namespace, `{"region":"eu","zone":"eu-1","instanceType":"small","initialize":true}`)
	p := r.Pool(t, namespace, namespace, 5)
	p.AwaitRunning(t, 5, 60*time.Second)

	// Without the provider's worker nothing is made or removed; nothing is lost either.
	require.NoError(t, r.Stack.Stop(t.Context(), component.ProviderWorker))
	p.Scale(t, 6)
	rig.Eventually(t, 20*time.Second, "the sixth waits", func() (bool, any) {
		for _, m := range p.Machines(t) {
			if o := m.Status.CurrentOperation; o != nil && o.Step == "create-instance" {
				return true, nil
			}
		}
		return false, p.Machines(t)
	})
	require.Len(t, p.Instances(t), 5)
	require.NoError(t, r.Stack.Start(t.Context(), component.ProviderWorker))
	p.AwaitRunning(t, 6, 60*time.Second)

	p.Delete(t)
	p.AwaitGone(t, 60*time.Second)
}
