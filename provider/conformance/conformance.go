// Package conformance checks whether a Provider obeys the contract of package provider. The test of each provider calls
// Run with a Harness; a new provider is complete when Run passes. The tests use the interface Provider only and know no
// cloud. They also say what they expect of a cloud whose instances carry names instead of UIDs (Traits.Named).
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

// Harness gives the suite a provider to check.
type Harness struct {
	// New returns a provider with an empty cloud. It is called once for each test, and registers its clean-up with t.
	New func(t *testing.T) Cloud

	// Bubble makes each test run in a bubble of testing/synctest: waits pass at once, and a busy machine does not
	// change them. The cloud must be in the memory of the test's process, without sockets.
	Bubble bool
}

// Cloud is a provider, and what a test can do to the cloud behind the provider. A nil field means that the cloud does
// not support it: the tests that need the field are skipped, and the reason names it.
type Cloud struct {
	Provider provider.Provider

	// Class is a valid class, with a valid Secret.
	Class provider.Class

	// Initializing is a class whose instances wait for InitializeInstance. Instances of Class never wait for it.
	Initializing *provider.Class

	// Elsewhere is Class in another cluster, for a cloud whose classes name their cluster. Nil: Machine.Cluster alone
	// says to which cluster an instance belongs.
	Elsewhere *provider.Class

	// Denied is Class with credentials that the cloud refuses.
	Denied *provider.Class

	// OwnVolume returns a volume of this cloud with the handle.
	OwnVolume func(handle string) provider.Volume

	// Fail makes the next call of a method end with the code, the message and the RetryAfter of err. It is not called
	// for VolumeIDs, and not for InitializeInstance if the cloud has no initialize step. If a method searches before it
	// sends its request, the search may succeed.
	Fail func(method provider.Method, err *provider.Error)

	// Codes are the codes that Fail supports. Nil means all codes.
	Codes []provider.Code

	// Answers reports whether the provider takes a code of a method's request for an answer and not for a failure: Fail
	// with this code does not make the method fail. Nil: only NotFound of DeleteInstance is such a code.
	Answers func(method provider.Method, code provider.Code) bool

	// Timeless says that this cloud's errors do not say when to try again: Fail does not support RetryAfter.
	Timeless bool

	// CreatesOn says that a create request cannot be cancelled: after a cancellation, CreateInstance waits until the
	// request has ended, or until the deadline of the call.
	CreatesOn bool

	// Hang makes calls of a method hang until the test ends. It is called for the same methods as Fail.
	Hang func(method provider.Method)

	// NamesUnique says that the cloud never has two instances with the same name: a second create request with a name
	// changes the existing instance.
	NamesUnique bool

	// CreateByHand creates an instance of Class for the machine as another program would: without the driver, even if the
	// machine has an instance, and without a UID if the machine has none.
	CreateByHand func(machine provider.Machine)
}

// The numbers of the suite.
const (
	// prompt is the time after the end of its context in which a call must return. It may be long, because a call that
	// does not notice the end never returns; and it must be, because test machines stall.
	prompt = time.Minute

	// patience is the maximum wait for a slow action of a cloud, such as the deletion of an instance.
	patience = 2 * time.Minute

	cluster = "conformance"
)

// canaries are keys and values that the suite adds to the Secret. The values look like secrets, and must not appear in
// any result.
func canaries() map[string]string {
	return map[string]string{
		"conformancePassword": "canary-7f3a9c51d2e84b60",
		"conformanceKey":      "-----BEGIN CANARY-----\nc0ffee5eed\n-----END CANARY-----\n",
	}
}

// Run runs all tests of the suite.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for method := range reflect.TypeFor[*conformance]().Methods() {
		if !strings.HasPrefix(method.Name, "Test") {
			continue
		}
		test := func(t *testing.T) {
			s := &conformance{harness: h}
			s.SetT(t)
			s.setUp()
			method.Func.Call([]reflect.Value{reflect.ValueOf(s)})
		}
		t.Run(method.Name, func(t *testing.T) {
			if h.Bubble {
				synctest.Test(t, test)
			} else {
				test(t)
			}
		})
	}
}

// conformance is one test of the suite, with a cloud of its own.
type conformance struct {
	suite.Suite // only its assertions are used: it cannot run a test in a bubble
	Cloud
	harness  Harness
	named    bool // instances carry the name of their machine, and no UID
	unique   bool // two instances cannot have the same name
	machines int  // number of machines made so far, part of the next machine's name
}
