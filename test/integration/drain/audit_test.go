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

// request is one line of the audit log, about a pod.
type request struct {
	At   time.Time
	Verb string // evict or delete
	Pod  string
	Code int
}

// asked returns the worker's requests about the pods of a namespace, in their order.
func asked(t *testing.T, namespace string) []request {
	t.Helper()
	var found []request
	for _, line := range r.Audit(t, func(line rig.Audited) bool {
		o := line.ObjectRef
		return o.Resource == "pods" && o.Namespace == namespace && line.User.Username == component.WorkerIdentity &&
			(o.Subresource == "eviction" || line.Verb == "delete")
	}) {
		q := request{
			At:   line.RequestReceivedTimestamp,
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

// evictedOnce checks that the API server accepted no eviction of a pod of a namespace twice, and returns how many it
// accepted. An attempt after a lost one may ask for a pod that is gone: the answer is 404. The pods must be of
// controllers that never use a name twice.
func evictedOnce(t *testing.T, namespace string) int {
	t.Helper()
	accepted := map[string]bool{}
	for _, q := range asked(t, namespace) {
		if q.Verb == "evict" && q.Code == http.StatusCreated {
			require.False(t, accepted[q.Pod], "pod %s was evicted twice", q.Pod)
			accepted[q.Pod] = true
		}
	}
	return len(accepted)
}

// released returns the names of the objects of a resource without namespaces that the worker has deleted.
func released(t *testing.T, resource string) []string {
	t.Helper()
	var names []string
	for _, line := range r.Audit(t, func(line rig.Audited) bool {
		return line.ObjectRef.Resource == resource && line.Verb == "delete" && line.ResponseStatus.Code == 200 && line.User.Username == component.WorkerIdentity
	}) {
		names = append(names, line.ObjectRef.Name)
	}
	return names
}
