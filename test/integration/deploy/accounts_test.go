//go:build integration

package deploy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
)

// The format of a request is "verb resource"; "/name" after the resource selects one object. A request is made in the
// namespace shop, unless the request ends with "in NAMESPACE". Resources of the API group machine.sapcloud.io are
// written without the group.
const defaultRequestNamespace = "shop"

// accountRequests has the requests that the API server must allow a user, because Millwright needs them, and the
// requests that the API server must forbid.
type accountRequests struct {
	user              string
	allowedRequests   []string
	forbiddenRequests []string
}

func workerAccount(user string) accountRequests {
	return accountRequests{
		user: user,
		allowedRequests: []string{
			"list machines",
			"watch machinesets",
			"list machinedeployments",
			"watch machineclasses",
			"list nodes",
			"create machines",
			"patch machines",
			"delete machines",
			"create machinesets",
			"patch machinedeployments",
			"update machines:status",
			"update machinesets:status",
			"update machinedeployments:status",
			"update machinesets:finalizers",
			"update nodes",
			"delete nodes",
			"create events",
			"patch events",
			"patch nodes:status",
			"list pods",
			"watch pods",
			"create secrets in kube-system",
			"deletecollection secrets in kube-system",
			"patch machineclasses",
			"list secrets",
			"watch secrets",
			"patch secrets",
		},
		forbiddenRequests: []string{
			"create machinedeployments",
			"delete machinedeployments",
			"create machineclasses",
			"delete machineclasses",
			"patch machines:status",
			"create secrets",
			"update secrets",
			"delete secrets",
			"create nodes",
			"delete namespaces",
			"create pods",
			"create pods:exec",
			"update leases/millwright-bridge in millwright",
			"create clusterrolebindings",
			"patch customresourcedefinitions",
		},
	}
}

// bridgeAccount returns the account of a bridge whose Lease is in the namespace home.
func bridgeAccount(user, home string) accountRequests {
	return accountRequests{
		user: user,
		allowedRequests: []string{
			"list machines", "watch machinesets", "list machinedeployments", "watch machineclasses", "watch nodes",
			"list secrets", "watch secrets", "create leases in " + home, "get leases/millwright-bridge in " + home,
			"update leases/millwright-bridge in " + home,
		},
		forbiddenRequests: []string{
			"get machines",
			"get nodes",
			"create machines",
			"patch machines",
			"delete machines",
			"patch machines:status",
			"update nodes",
			"get secrets",
			"update secrets",
			"patch secrets",
			"create leases in kube-system",
			"update leases/millwright-bridge in kube-system",
			"update leases/kube-scheduler in " + home,
			"delete leases/millwright-bridge in " + home,
			"create events",
		},
	}
}

// installedAccounts returns the accounts of deploy/overlays/example, and the accounts that the overlays incus and mcm
// add.
func installedAccounts() []accountRequests {
	const serviceAccounts = "system:serviceaccount:millwright:"
	core := workerAccount(serviceAccounts + "millwright-worker")
	// this worker does not poll the task queue of a provider
	core.forbiddenRequests = append(core.forbiddenRequests, "get secrets")
	provider := accountRequests{
		user: serviceAccounts + "millwright-provider-virtual",
		allowedRequests: []string{
			"get machineclasses",
			"get machines",
			"list machines",
			"get secrets",
			"get secrets in kube-system",
		},
		forbiddenRequests: []string{
			"watch machines",
			"list nodes",
			"list secrets",
			"update secrets",
			"patch secrets",
			"create machines",
			"patch machines:status",
			"delete machines",
			"update nodes",
			"delete nodes",
			"get leases in millwright",
		},
	}
	incus := accountRequests{
		user: serviceAccounts + "millwright-provider-incus",
		allowedRequests: []string{
			"get machineclasses",
			"get machines",
			"list machines",
			"get secrets in kube-system",
			"get secrets in millwright",
		},
		// the user's own overlay grants the Secrets of other namespaces
		forbiddenRequests: append(slices.Clone(provider.forbiddenRequests), "get secrets"),
	}
	bootstrap := accountRequests{
		user:              serviceAccounts + "default",
		forbiddenRequests: []string{"list machines", "get secrets", "list nodes"},
	}
	guard := accountRequests{ // service account of deploy/overlays/mcm
		user: serviceAccounts + "millwright-heartbeats",
		allowedRequests: []string{
			"list leases/millwright-worker in millwright",
			"list leases/millwright-bridge in millwright",
		},
		forbiddenRequests: []string{
			"list leases in millwright",
			"get leases/millwright-worker in millwright",
			"update leases/millwright-worker in millwright",
			"list machines",
		},
	}
	return []accountRequests{
		core,
		provider,
		incus,
		bootstrap,
		guard,
		bridgeAccount(serviceAccounts+"millwright-bridge", "millwright"),
	}
}

// localAccounts returns the accounts of the local stack. The stack's worker polls all task queues, and the bridge has
// its Lease in the namespace default.
func localAccounts() []accountRequests {
	worker := workerAccount(component.WorkerIdentity)
	worker.allowedRequests = append(worker.allowedRequests, "get secrets")
	return []accountRequests{worker, bridgeAccount(component.BridgeIdentity, "default")}
}

// testAccounts checks for each account which requests the API server allows and denies.
func testAccounts(t *testing.T, c *cluster, accounts []accountRequests) {
	for _, a := range accounts {
		t.Run(a.user, func(t *testing.T) {
			for _, request := range a.allowedRequests {
				c.requireAllowed(t, a.user, request)
			}
			for _, request := range a.forbiddenRequests {
				assert.False(t, c.isAllowed(t, a.user, request), "%s may %s", a.user, request)
			}
		})
	}
}

// requireAllowed waits until a request is allowed, because the API server reads new roles and bindings with a delay.
func (c *cluster) requireAllowed(t *testing.T, user, request string) {
	t.Helper()
	err := wait.PollUntilContextTimeout(
		t.Context(),
		50*time.Millisecond,
		10*time.Second,
		true,
		func(context.Context) (bool, error) {
			return c.isAllowed(t, user, request), nil
		},
	)
	assert.NoError(t, err, "%s may not %s", user, request)
}

func (c *cluster) isAllowed(t *testing.T, user, request string) bool {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, ResourceAttributes: parseRequest(t, request),
	}}
	answer, err := c.client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Empty(t, answer.Status.EvaluationError)
	return answer.Status.Allowed
}

// apiGroupsByResource has the API groups of the resources in the accounts. Other resources are in the core group.
var apiGroupsByResource = map[string]string{
	"machines": v1alpha1.GroupName, "machinesets": v1alpha1.GroupName,
	"machinedeployments": v1alpha1.GroupName, "machineclasses": v1alpha1.GroupName,
	"leases": "coordination.k8s.io", "clusterrolebindings": "rbac.authorization.k8s.io",
	"customresourcedefinitions": "apiextensions.k8s.io",
}

// parseRequest parses "verb resource[:subresource][/name] [in namespace]".
func parseRequest(t *testing.T, request string) *authorizationv1.ResourceAttributes {
	t.Helper()
	var verb, object string
	in := defaultRequestNamespace
	if _, err := fmt.Sscanf(request, "%s %s in %s", &verb, &object, &in); err != nil {
		in = defaultRequestNamespace
		_, err := fmt.Sscanf(request, "%s %s", &verb, &object)
		require.NoError(t, err, request)
	}
	object, name, _ := strings.Cut(object, "/")
	resource, subresource, _ := strings.Cut(object, ":")
	return &authorizationv1.ResourceAttributes{
		Verb:        verb,
		Group:       apiGroupsByResource[resource],
		Version:     "*",
		Resource:    resource,
		Subresource: subresource,
		Name:        name,
		Namespace:   in,
	}
}
