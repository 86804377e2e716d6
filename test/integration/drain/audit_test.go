//go:build integration

package drain

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millwright/devstack/component"
	"millwright/test/integration/rig"
)

// podRequest is a request of the worker for a pod, from one line of the audit log.
type podRequest struct {
	Time time.Time
	Verb string // evict or delete
	Pod  string
	Code int
}

// listPodRequests returns the worker's requests about the pods of a namespace, in the order of the audit log.
func listPodRequests(t *testing.T, namespace string) []podRequest {
	t.Helper()
	var found []podRequest
	for _, line := range testRig.AuditedRequests(t, func(line rig.AuditedRequest) bool {
		o := line.ObjectRef
		return o.Resource == "pods" && o.Namespace == namespace && line.User.Username == component.WorkerIdentity &&
			(o.Subresource == "eviction" || line.Verb == "delete")
	}) {
		q := podRequest{
			Time: line.RequestReceivedTimestamp,
			Verb: line.Verb,
			Pod:  line.ObjectRef.Name,
			Code: line.ResponseStatus.Code,
		}
		if line.ObjectRef.Subresource == "eviction" {
			q.Verb = "evict"
		}
		found = append(found, q)
	}
	return found
}

// requireOneEvictionPerPod requires that the API server accepted at most one eviction per pod of a namespace.
// requireOneEvictionPerPod returns the number of accepted evictions. If an attempt of the activity is lost, the next
// attempt may evict a pod that is already gone. For this second eviction, the API server returns 404. The function
// identifies pods by name, so the controllers of the pods must not reuse a name.
func requireOneEvictionPerPod(t *testing.T, namespace string) int {
	t.Helper()
	accepted := map[string]bool{}
	for _, q := range listPodRequests(t, namespace) {
		if q.Verb == "evict" && q.Code == http.StatusCreated {
			require.False(t, accepted[q.Pod], "pod %s was evicted twice", q.Pod)
			accepted[q.Pod] = true
		}
	}
	return len(accepted)
}

// listDeletedObjects returns the names of the objects of a cluster-scoped resource that the worker has deleted.
func listDeletedObjects(t *testing.T, resource string) []string {
	t.Helper()
	var names []string
	for _, line := range testRig.AuditedRequests(t, func(line rig.AuditedRequest) bool {
		return line.ObjectRef.Resource == resource && line.Verb == "delete" && line.ResponseStatus.Code == 200 && line.User.Username == component.WorkerIdentity
	}) {
		names = append(names, line.ObjectRef.Name)
	}
	return names
}
