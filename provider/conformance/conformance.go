// Package conformance tests whether a Provider obeys the contract of package provider. The test of each provider calls
// Run with a Harness; a new provider is complete when Run passes. The tests use only the interface Provider and depend
// on no particular cloud. The suite also covers clouds whose instances carry names instead of UID tags (Traits.Named).
package conformance

import (
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/suite"

	"millwright/provider"
)

// Harness provides the suite with the Provider under test.
type Harness struct {
	// NewCloud returns a Provider with an empty cloud. The suite calls NewCloud once for each test. NewCloud registers
	// the clean-up of the cloud with t.
	NewCloud func(t *testing.T) Cloud

	// UsesSynctestBubble runs each test in a bubble of testing/synctest, so that waits end at once and a busy test
	// machine does not change durations. UsesSynctestBubble requires a cloud in the memory of the test's process,
	// without sockets.
	UsesSynctestBubble bool
}

// Cloud is a Provider, with functions by which a test controls the cloud behind the Provider. A nil field means that
// the cloud does not support the function: the suite skips the tests that need the field and reports the reason.
type Cloud struct {
	Provider provider.Provider

	// Class is a valid class, with a valid Secret.
	Class provider.Class

	// ClassWithInitializeStep is a class with the initialize step: its instances wait for InitializeInstance. Class must
	// have no initialize step.
	ClassWithInitializeStep *provider.Class

	// OtherClusterClass is Class in another cluster, for a cloud whose classes contain the name of their cluster. Nil
	// means that Machine.Cluster alone determines the cluster of an instance.
	OtherClusterClass *provider.Class

	// DeniedClass is Class with credentials that the cloud refuses.
	DeniedClass *provider.Class

	// NewVolume returns a volume of the cloud under test with the given handle.
	NewVolume func(handle string) provider.Volume

	// FailNextCall makes the next call of a method end with the code, the message and the RetryAfter of err. The suite
	// does not call FailNextCall for VolumeIDs, nor for InitializeInstance if the cloud has no initialize step. If a
	// method searches before it sends its request, the search may succeed.
	FailNextCall func(method provider.Method, err *provider.Error)

	// SupportedCodes are the codes that FailNextCall supports. Nil means all codes.
	SupportedCodes []provider.Code

	// IsSuccessCode reports whether a code from the cloud is not an error for this method, so that the method may
	// succeed after FailNextCall with the code. If IsSuccessCode is nil, only NotFound of DeleteInstance is a regular
	// answer.
	IsSuccessCode func(method provider.Method, code provider.Code) bool

	// LacksRetryDelays is true if the cloud's errors contain no retry delay: FailNextCall does not support RetryAfter.
	LacksRetryDelays bool

	// CannotCancelCreate is true if a create request cannot be cancelled. After a cancellation, CreateInstance then
	// waits until the request ends or the deadline of the call passes.
	CannotCancelCreate bool

	// BlockCalls makes calls of a method hang until the test ends. The suite calls BlockCalls for the same methods as
	// FailNextCall.
	BlockCalls func(method provider.Method)

	// RequiresUniqueNames is true if the cloud never has two instances with the same name: a second create request with
	// a name changes the existing instance.
	RequiresUniqueNames bool

	// CreateInstanceByHand creates an instance of Class for the machine without the driver, as another program would.
	// CreateInstanceByHand creates the instance even if the machine already has an instance. If Machine.UID is empty, the
	// instance has no UID tag.
	CreateInstanceByHand func(machine provider.Machine)
}

// Timeouts of the suite, and the cluster name in its machines.
const (
	// maxReturnDelay is the maximum time in which a call must return after its context is done. The time is long because
	// test machines stall. The long limit still detects a call that ignores its context, because such a call never
	// returns.
	maxReturnDelay = time.Minute

	// maxActionWait is the maximum wait for a slow action of a cloud, such as the deletion of an instance.
	maxActionWait = 2 * time.Minute

	clusterName = "conformance"
)

// canarySecrets returns keys and values that the suite adds to the class's Secret. The values look like secrets, and
// must not appear in any result or error.
func canarySecrets() map[string]string {
	return map[string]string{
		"conformancePassword": "canary-7f3a9c51d2e84b60",
		"conformanceKey":      "-----BEGIN CANARY-----\nc0ffee5eed\n-----END CANARY-----\n",
	}
}

// Run runs all tests of the suite.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for method := range reflect.TypeFor[*conformanceTest]().Methods() {
		if !strings.HasPrefix(method.Name, "Test") {
			continue
		}
		test := func(t *testing.T) {
			s := &conformanceTest{harness: h}
			s.SetT(t)
			s.setUp()
			method.Func.Call([]reflect.Value{reflect.ValueOf(s)})
		}
		t.Run(method.Name, func(t *testing.T) {
			if h.UsesSynctestBubble {
				synctest.Test(t, test)
			} else {
				test(t)
			}
		})
	}
}

// conformanceTest is the state of one test of the suite. Each test has its own cloud.
type conformanceTest struct {
	suite.Suite // used for its assertions only, because suite.Run cannot run a test in a synctest bubble
	Cloud
	harness           Harness
	hasNamedInstances bool // Traits.Named: instances have the name of their machine and no UID tag
	hasUniqueNames    bool // Traits.Idempotency is ByName: two instances cannot have the same name
	machineCount      int  // number of generated machines; the next machine's name contains the number
}
