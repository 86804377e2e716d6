//go:build integration

package drain

import (
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

// asked returns what our worker asked of the pods of a namespace, in order.
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

// evictedOnce checks that no pod of a namespace was evicted again after the API server had accepted that, and returns
// how many it accepted. The pods must be of controllers that never use a name twice.
func evictedOnce(t *testing.T, namespace string) int {
	t.Helper()
	accepted := map[string]bool{}
	for _, q := range asked(t, namespace) {
		if q.Verb == "evict" {
			require.False(t, accepted[q.Pod], "pod %s was evicted again after a 201", q.Pod)
			accepted[q.Pod] = q.Code == 201
		}
	}
	count := 0
	for _, yes := range accepted {
		if yes {
			count++
		}
	}
	return count
}

// released returns the names of what our worker deleted of a resource without namespaces.
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
