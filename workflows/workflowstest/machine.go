package workflowstest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.temporal.io/sdk/testsuite"

	"millwright/activities/kube"
)

var ObjectRef = kube.Ref{Namespace: "default", Name: "m-1", UID: "uid-1"}

// AssertWorkflowTime asserts that the time in an activity's input is the current workflow time.
func AssertWorkflowTime(t *testing.T, env *testsuite.TestWorkflowEnvironment, in kube.ReadInput) {
	t.Helper()
	assert.WithinDuration(t, env.Now(), in.At, time.Second, "the time of %s", in.Ref.Key())
}
