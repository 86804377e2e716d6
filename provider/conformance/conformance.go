// Package conformance checks whether a Provider obeys the contract of package provider. The test of each provider calls
// Run with a Harness; a new provider is complete when that passes. It uses the interface only and knows no cloud. What
// it expects of a cloud whose instances carry names instead of UIDs (Traits.Named) is in the same tests.
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
	// New returns a provider with an empty cloud. It is called once for each test, which registers its own clean-up.
	New func(t *testing.T) Cloud

	// Bubble says that each test runs in a bubble of testing/synctest: its times pass at once, and no busy machine changes
	// them. The cloud must be in the memory of the test's process, without sockets.
	Bubble bool
}

// Cloud is a provider, and what its test can do to the cloud behind it. A nil field is not supported: the tests that
// need it are skipped, and say so.
type Cloud struct {
	Provider provider.Provider

	// Class is a class that instances can be created from, with a valid Secret.
	Class provider.Class

	// Initializing is a class whose instances wait for InitializeInstance. Instances of Class never do.
	Initializing *provider.Class

	// Elsewhere is Class in another cluster, for a cloud whose classes name their cluster. Nil: Machine.Cluster alone says
	// which cluster an instance is of.
	Elsewhere *provider.Class

	// Denied is Class with credentials that the cloud refuses.
	Denied *provider.Class

	// OwnVolume returns a volume of this cloud with that handle.
	OwnVolume func(handle string) provider.Volume

	// Fail makes the next call of a method end with that code, message and RetryAfter. It is not called for VolumeIDs, nor
	// for InitializeInstance of a cloud without such a step. The search that precedes the request of a method need not
	// fail.
	Fail func(method provider.Method, err *provider.Error)

	// Codes are the codes that Fail can make. Nil means all.
	Codes []provider.Code

	// Answers says that a code is an answer of a method's request to the provider, and no refusal: Fail with it does not
	// make the method fail. Nil: there are no such codes, but NotFound of DeleteInstance.
	Answers func(method provider.Method, code provider.Code) bool

	// Timeless says that errors of this cloud cannot say when to try again: Fail is not given RetryAfter.
	Timeless bool

	// CreatesOn says that a create request cannot be taken back: CreateInstance waits for its end when it is cancelled, and
	// gives it up only at its deadline.
	CreatesOn bool

	// Hang makes calls of a method hang until the test ends. It is called for the methods of Fail.
	Hang func(method provider.Method)

	// NamesUnique says that the cloud never has two instances of one name: a second create request for a name changes the
	// instance that there is.
	NamesUnique bool

	// Plant creates an instance of Class for the machine, whether or not there is one, as another program would: past the
	// driver, and without a UID if the machine has none.
	Plant func(machine provider.Machine)
}

// The numbers of the suite.
const (
	// prompt is how soon after the end of its context a call must return. A call that does not notice the end never
	// returns: this is long, since test machines stall.
	prompt = time.Minute

	// patience is how long to wait for slow actions of a cloud, such as deleting an instance.
	patience = 2 * time.Minute

	cluster = "conformance"
)

// canaries are the values in the Secret that must never appear in a result. They look like real secrets.
func canaries() map[string]string {
	return map[string]string{
		"conformancePassword": "canary-7f3a9c51d2e84b60",
		"conformanceKey":      "-----BEGIN CANARY-----\nc0ffee5eed\n-----END CANARY-----\n",
	}
}

// Run checks the provider.
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
	suite.Suite // of which only the assertions are used: it cannot run a test in a bubble
	Cloud
	harness  Harness
	named    bool // instances carry the name of their machine, and no UID
	unique   bool // a name is used once
	machines int  // number of machines made, for unique names
}
