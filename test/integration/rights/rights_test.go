// Tier: test. Roles are part of an installation, and new code may send a request that no role allows.

//go:build integration

// Package rights tests that Millwright's roles are minimal. The scenarios create, roll out, drain, fail and delete
// machines, and the roles must allow all requests of the processes. For each right that no request uses, this package
// must contain a reason. As in an installation, a separate process polls the provider's task queue.
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

var testRig *rig.Rig

func TestMain(m *testing.M) {
	options := stack.Options{
		Components: append(component.Names(), component.ProviderWorker),
		Args:       map[string][]string{component.Worker: {"--queues=machines,kubernetes,drains", "--virtualcloud-address="}},
	}
	os.Exit(rig.Main(m, options, func(up *rig.Rig) { testRig = up }))
}

// right is the permission of one role for one verb on one resource. A rule of a role may grant several rights.
type right struct {
	Role     string // NAMESPACE/NAME of a Role, or the name of a ClusterRole
	Verb     string
	Resource string // GROUP/RESOURCE, or GROUP/RESOURCE/SUBRESOURCE
}

func (r right) String() string { return fmt.Sprintf("%s: %s %s", r.Role, r.Verb, r.Resource) }

// The constants are reasons to grant rights that these scenarios do not always use.
const (
	reasonBlockOwnerDeletion = "the admission plugin OwnerReferencesPermissionEnforcement asks for it when the worker makes an object that blocks the deletion of its owner; it is no request of the worker"
	reasonStaleCache         = "a cache is not new enough, or another writer was faster"
	reasonNoStreamingList    = "a cache is filled by an API server that cannot send a list as a watch, or a watch continues after an interruption"
	reasonLostAttempt        = "an attempt that was cut off has made the bootstrap token that the next one wants, and the token may end too early for it"
)

var reasonsForUnusedRights = map[string]string{
	"millwright-objects: update machine.sapcloud.io/machinesets/finalizers":        reasonBlockOwnerDeletion,
	"millwright-objects: update machine.sapcloud.io/machinedeployments/finalizers": reasonBlockOwnerDeletion,
	"millwright-worker: get machine.sapcloud.io/machines":                          reasonStaleCache,
	"millwright-worker: get machine.sapcloud.io/machinesets":                       reasonStaleCache,
	"millwright-worker: get machine.sapcloud.io/machinedeployments":                reasonStaleCache,
	"millwright-worker: get machine.sapcloud.io/machineclasses":                    reasonStaleCache,
	"millwright-worker: get /nodes":                                                reasonStaleCache,
	"millwright-objects: update machine.sapcloud.io/machines":                      "a set takes a machine that no set owns, or lets one go",
	"millwright-objects: update machine.sapcloud.io/machinedeployments":            "without it, the policy millwright-approvals lets the worker only approve; the worker itself patches",
	"millwright-worker: patch /events":                                             "the same event happens again within minutes",
	"millwright-worker: list machine.sapcloud.io/machinedrainrules":                reasonNoStreamingList,
	"millwright-worker: list policy/poddisruptionbudgets":                          reasonNoStreamingList,
	"millwright-worker: list storage.k8s.io/volumeattachments":                     reasonNoStreamingList,
	"millwright-worker: list /nodes":                                               reasonNoStreamingList,
	"millwright-worker: list machine.sapcloud.io/machinedeployments":               reasonNoStreamingList,
	"millwright-worker: list coordination.k8s.io/leases":                           reasonNoStreamingList,
	"millwright-worker: list /namespaces":                                          reasonNoStreamingList,
	"millwright-bridge: list /namespaces":                                          reasonNoStreamingList,
	"millwright-bridge: list coordination.k8s.io/leases":                           reasonNoStreamingList,
	"millwright-bridge: list /nodes":                                               reasonNoStreamingList,
	"millwright-bridge: list /secrets":                                             reasonNoStreamingList,
	"millwright-bridge: list machine.sapcloud.io/machineclasses":                   reasonNoStreamingList,
	"millwright-bridge: list machine.sapcloud.io/machinedeployments":               reasonNoStreamingList,
	"millwright-bridge: list machine.sapcloud.io/machines":                         reasonNoStreamingList,
	"millwright-bridge: list machine.sapcloud.io/machinesets":                      reasonNoStreamingList,
	"millwright-bridge: list machine.sapcloud.io/rolloutpolicies":                  reasonNoStreamingList,
	"millwright-objects: update machine.sapcloud.io/machineclasses/status":         "the provider of a class has lost its workers, or has one again",
	"millwright-provider: get machine.sapcloud.io/machines":                        "only a worker of a driver of MCM reads the annotations of nodes",
	"kube-system/millwright-worker: get /secrets":                                  reasonLostAttempt,
	"kube-system/millwright-worker: patch /secrets":                                reasonLostAttempt,
}

func TestRolesGrantOnlyNeededRights(t *testing.T) {
	testRig.LimitSecretReaders(t, component.ProviderIdentity)
	t.Run("scenarios", func(t *testing.T) {
		for name, run := range map[string]func(*testing.T){
			"rollout": runRollouts, "drain": runDrains, "preserved": runPreservation, "orphan": runOrphanSweeps, "replaced": runNodeDeletion, "restarted": runRestarts,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				run(t)
			})
		}
	})

	roles := map[string][]role{
		component.WorkerIdentity: {
			readClusterRole(t, "millwright-worker"),
			readClusterRole(t, "millwright-objects"),
			readNamespacedRole(t, metav1.NamespaceDefault, "millwright-worker"),
			readNamespacedRole(t, metav1.NamespaceSystem, "millwright-worker"),
		},
		component.BridgeIdentity: {
			readClusterRole(t, "millwright-bridge"),
			readNamespacedRole(t, metav1.NamespaceDefault, "millwright-bridge"),
		},
		component.ProviderIdentity: {readClusterRole(t, "millwright-provider"), readClusterRole(t, component.SecretsRole)},
	}
	granted := map[right]bool{} // the value is true if a request has used the right
	for _, of := range roles {
		for _, role := range of {
			for _, right := range role.grantedRights() {
				granted[right] = false
			}
		}
	}
	beyond := map[string]int{} // requests that no role allows
	rig.Eventually(t, "the audit log has what was done: it is written in batches, up to 30 s late", func() (bool, any) {
		clear(beyond)
		for _, line := range testRig.AuditedRequests(t, func(line rig.AuditedRequest) bool {
			return roles[line.User.Username] != nil && line.ObjectRef.Resource != ""
		}) {
			allowed := false
			for _, role := range roles[line.User.Username] {
				for _, right := range role.rightsForRequest(line) {
					granted[right], allowed = true, true
				}
			}
			if !allowed {
				o := line.ObjectRef
				beyond[fmt.Sprintf("%s: %s %s/%s/%s in namespace %q", line.User.Username, line.Verb, o.APIGroup, o.Resource, o.Subresource, o.Namespace)]++
			}
		}
		missing := unusedRightsWithoutReason(granted)
		return len(missing) == 0 || len(beyond) > 0, missing
	})
	assert.Empty(t, beyond, "requests that no role allows, and how many")
	for name := range reasonsForUnusedRights {
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
			t.Logf("not used: %s: %s", right, reasonsForUnusedRights[right.String()])
		}
	}
	t.Logf("%d rights are granted, %d were used", len(granted), used)
}

// unusedRightsWithoutReason returns the rights that no request used and for which reasonsForUnusedRights has no reason,
// sorted.
func unusedRightsWithoutReason(granted map[right]bool) (names []string) {
	for right, used := range granted {
		if _, explained := reasonsForUnusedRights[right.String()]; !used && !explained {
			names = append(names, right.String())
		}
	}
	slices.Sort(names)
	return names
}

// role is a role that a binding gives to a user.
type role struct {
	name      string
	namespace string // namespace in which the role is valid; empty: all namespaces
	rules     []rbacv1.PolicyRule
}

func readClusterRole(t *testing.T, name string) role {
	t.Helper()
	found, err := testRig.Kube.RbacV1().ClusterRoles().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return role{name: name, rules: found.Rules}
}

func readNamespacedRole(t *testing.T, namespace, name string) role {
	t.Helper()
	found, err := testRig.Kube.RbacV1().Roles(namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return role{name: namespace + "/" + name, namespace: namespace, rules: found.Rules}
}

// grantedRights returns the rights that the role grants. grantedRights returns a rule with a wildcard as one right,
// which matches no request.
func (r role) grantedRights() (all []right) {
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

// rightsForRequest returns the rights of the role that allow a request. The result is empty if the role does not allow
// the request.
func (r role) rightsForRequest(line rig.AuditedRequest) (all []right) {
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
