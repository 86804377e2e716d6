// Tier: test. Roles are part of what is installed, and each new request can break them.

//go:build integration

// Package rights shows that the roles that Millwright ships with are as small as can be: what the processes ask of the
// API server while machines live, move, fail and go is all allowed by their roles, and a right that nobody used has a
// reason here. As in an installation, the provider's queue is served by a process of its own.
package rights

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/test/integration/rig"
)

var r *rig.Rig

func TestMain(m *testing.M) {
	options := stack.Options{
		Components: append(component.Names(), component.ProviderWorker),
		Args:       map[string][]string{component.Worker: {"--queues=machines,kubernetes,drains", "--virtualcloud-address="}},
	}
	os.Exit(rig.Main(m, options, func(up *rig.Rig) { r = up }))
}

// right is the permission of one role for one verb on one resource. A rule of a role grants several of them.
type right struct {
	Role     string // NAMESPACE/NAME of a Role, or the name of a ClusterRole
	Verb     string
	Resource string // GROUP/RESOURCE, or GROUP/RESOURCE/SUBRESOURCE
}

func (r right) String() string { return fmt.Sprintf("%s: %s %s", r.Role, r.Verb, r.Resource) }

// Why rights are granted that a run of these scenarios need not use.
const (
	blocking  = "the admission plugin OwnerReferencesPermissionEnforcement asks for it when the worker makes an object that blocks the deletion of its owner; it is no request of the worker"
	outdated  = "a cache is not new enough, or another writer was faster"
	streaming = "a cache is filled by an API server that cannot send a list as a watch, or a watch continues after an interruption"
	cutOff    = "an attempt that was cut off has made the bootstrap token that the next one wants, and the token may end too early for it"
)

var unused = map[string]string{
	"millwright-objects: update machine.sapcloud.io/machinesets/finalizers":        blocking,
	"millwright-objects: update machine.sapcloud.io/machinedeployments/finalizers": blocking,
	"millwright-worker: get machine.sapcloud.io/machines":                          outdated,
	"millwright-worker: get machine.sapcloud.io/machinesets":                       outdated,
	"millwright-worker: get machine.sapcloud.io/machinedeployments":                outdated,
	"millwright-worker: get machine.sapcloud.io/machineclasses":                    outdated,
	"millwright-worker: get /nodes":                                                outdated,
	"millwright-objects: update machine.sapcloud.io/machines":                      "a set takes a machine that no set owns, or lets one go",
	"millwright-worker: patch /events":                                             "the same event happens again within minutes",
	"millwright-worker: list machine.sapcloud.io/machinedrainrules":                streaming,
	"millwright-worker: list policy/poddisruptionbudgets":                          streaming,
	"millwright-worker: list storage.k8s.io/volumeattachments":                     streaming,
	"millwright-worker: list /nodes":                                               streaming,
	"millwright-worker: list machine.sapcloud.io/machinedeployments":               streaming,
	"millwright-worker: list coordination.k8s.io/leases":                           streaming,
	"millwright-worker: list /namespaces":                                          streaming,
	"millwright-bridge: list /namespaces":                                          streaming,
	"millwright-bridge: list coordination.k8s.io/leases":                           streaming,
	"millwright-bridge: list /nodes":                                               streaming,
	"millwright-bridge: list /secrets":                                             streaming,
	"millwright-bridge: list machine.sapcloud.io/machineclasses":                   streaming,
	"millwright-bridge: list machine.sapcloud.io/machinedeployments":               streaming,
	"millwright-bridge: list machine.sapcloud.io/machines":                         streaming,
	"millwright-bridge: list machine.sapcloud.io/machinesets":                      streaming,
	"millwright-bridge: list machine.sapcloud.io/rolloutpolicies":                  streaming,
	"millwright-objects: update machine.sapcloud.io/machineclasses/status":         "the provider of a class has lost its workers, or has one again",
	"millwright-provider: get machine.sapcloud.io/machines":                        "only a worker of a driver of MCM reads the annotations of nodes",
	"kube-system/millwright-worker: get /secrets":                                  cutOff,
	"kube-system/millwright-worker: patch /secrets":                                cutOff,
}

func TestRolesAreAsSmallAsCanBe(t *testing.T) {
	r.ReadSecrets(t, component.ProviderIdentity)
	t.Run("scenarios", func(t *testing.T) {
		for name, run := range map[string]func(*testing.T){
			"rollout": rollout, "drain": drain, "preserved": preserved, "orphan": orphan, "replaced": replaced, "restarted": restarted,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				run(t)
			})
		}
	})

	roles := map[string][]role{
		component.WorkerIdentity: {
			clusterRole(t, "millwright-worker"),
			clusterRole(t, "millwright-objects"),
			namespacedRole(t, metav1.NamespaceDefault, "millwright-worker"),
			namespacedRole(t, metav1.NamespaceSystem, "millwright-worker"),
		},
		component.BridgeIdentity: {
			clusterRole(t, "millwright-bridge"),
			namespacedRole(t, metav1.NamespaceDefault, "millwright-bridge"),
		},
		component.ProviderIdentity: {clusterRole(t, "millwright-provider"), clusterRole(t, component.SecretsRole)},
	}
	granted := map[right]bool{} // true: used
	for _, of := range roles {
		for _, role := range of {
			for _, right := range role.rights() {
				granted[right] = false
			}
		}
	}
	beyond := map[string]int{} // requests that no role allows
	rig.Eventually(t, "the audit log has what was done: it is written in batches, up to 30 s late", func() (bool, any) {
		clear(beyond)
		for _, line := range r.Audit(t, func(line rig.Audited) bool { return roles[line.User.Username] != nil && line.ObjectRef.Resource != "" }) {
			allowed := false
			for _, role := range roles[line.User.Username] {
				for _, right := range role.allowing(line) {
					granted[right], allowed = true, true
				}
			}
			if !allowed {
				o := line.ObjectRef
				beyond[fmt.Sprintf("%s: %s %s/%s/%s in namespace %q", line.User.Username, line.Verb, o.APIGroup, o.Resource, o.Subresource, o.Namespace)]++
			}
		}
		missing := withoutReason(granted)
		return len(missing) == 0 || len(beyond) > 0, missing
	})
	assert.Empty(t, beyond, "requests that no role allows, and how many")
	for name := range unused {
		assert.True(
			t,
			slices.ContainsFunc(slices.Collect(maps.Keys(granted)), func(r right) bool { return r.String() == name }),
			"nobody has the right %q any more",
			name,
		)
	}
	used := 0
	for right, is := range granted {
		if is {
			used++
		} else {
			t.Logf("not used: %s: %s", right, unused[right.String()])
		}
	}
	t.Logf("%d rights are granted, %d were used", len(granted), used)
}

// withoutReason returns the rights that nobody used and that have no reason here, sorted.
func withoutReason(granted map[right]bool) (names []string) {
	for right, used := range granted {
		if _, explained := unused[right.String()]; !used && !explained {
			names = append(names, right.String())
		}
	}
	slices.Sort(names)
	return names
}

// role is a role that a user has by a binding.
type role struct {
	name      string
	namespace string // in which it holds; empty: everywhere
	rules     []rbacv1.PolicyRule
}

func clusterRole(t *testing.T, name string) role {
	t.Helper()
	found, err := r.Kube.RbacV1().ClusterRoles().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return role{name: name, rules: found.Rules}
}

func namespacedRole(t *testing.T, namespace, name string) role {
	t.Helper()
	found, err := r.Kube.RbacV1().Roles(namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return role{name: namespace + "/" + name, namespace: namespace, rules: found.Rules}
}

// rights returns what the role grants. A rule with a wildcard is one right, which no request uses.
func (r role) rights() (all []right) {
	for _, rule := range r.rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					all = append(all, right{r.name, verb, group + "/" + resource})
				}
			}
		}
	}
	return all
}

// allowing returns the rights of the role that allow a request: none if it does not.
func (r role) allowing(line rig.Audited) (all []right) {
	o := line.ObjectRef
	if r.namespace != "" && r.namespace != o.Namespace {
		return nil
	}
	resource := strings.TrimSuffix(o.Resource+"/"+o.Subresource, "/")
	for _, rule := range r.rules {
		named := len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, o.Name)
		if named && slices.Contains(rule.APIGroups, o.APIGroup) && slices.Contains(rule.Resources, resource) &&
			slices.Contains(rule.Verbs, line.Verb) {
			all = append(all, right{r.name, line.Verb, o.APIGroup + "/" + resource})
		}
	}
	return all
}
